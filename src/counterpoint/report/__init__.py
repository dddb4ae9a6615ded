"""The report: from run folders to one self-contained HTML page that opens offline."""
