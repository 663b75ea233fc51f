"""What people look at: tables, plots, pages. Knows results, never torch."""
