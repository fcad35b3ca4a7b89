"""What commands share: flags, progress, tables and warnings."""
