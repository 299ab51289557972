"""``fm2 ablate``: what each field and each part contributes to a model."""
