"""The paper's tables once more, from the original files, beside the published figures."""
