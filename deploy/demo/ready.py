"""Wait until a server answers at an address: ``ready.py URL``."""

import sys

import urllib3

retries = urllib3.Retry(60, backoff_factor=0.2, backoff_max=1, status_forcelist=[503])
try:
    urllib3.request("GET", sys.argv[1], retries=retries)
except urllib3.exceptions.HTTPError as error:
    sys.exit(f"{sys.argv[1]} does not respond: {error}")
