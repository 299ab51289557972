"""Many runs side by side: compare models, tune settings, reproduce the paper's tables, write reports."""
