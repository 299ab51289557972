"""Which combinations of fields a model does not yet know about."""
