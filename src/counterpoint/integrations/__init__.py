"""Counterpoint's losses as trainers of other libraries call them; no module here imports those libraries."""
