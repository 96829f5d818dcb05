"""Charts, galleries and the HTML page of a campaign, figures of studies, and queries exported for labeling."""
