"""Reports: charts and tables of trained models and their data, on one HTML page."""

from fm2.studies.reporting.mutual_information import mutual_information

__all__ = ["mutual_information"]
