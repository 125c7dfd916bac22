"""Images for the benchmarks, from several sources: one function, `load`. And text: `load_text`."""

from ._available import Availability as Availability, available as available, describe as describe
from ._images import (
    NAMES as NAMES,
    DataError as DataError,
    Images as Images,
    places_in_class as places_in_class,
)
from ._load import load as load
from ._prepare import prepare as prepare
from ._search import default_data_dir as default_data_dir
from ._text import Section as Section, Text as Text, describe_text as describe_text, load_text as load_text
