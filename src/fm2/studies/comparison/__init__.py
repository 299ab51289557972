"""``fm2 compare``: several models trained and evaluated under the same conditions."""
