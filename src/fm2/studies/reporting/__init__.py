"""Tables and pictures of trained models and their data, on one page."""

from fm2.studies.reporting.mutual_information import mutual_information

__all__ = ["mutual_information"]
