"""The published contract: JSON Schemas (draft-07) of every document and answer."""
