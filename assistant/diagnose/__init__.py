"""From evidence to a diagnosis: rules first; root told from cascade; an honest unknown."""
