"""What a run leaves behind and shows: records, progress, tables, pages."""
