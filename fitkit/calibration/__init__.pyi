from .calibrating import calibrate as calibrate
from .probes import suggest_probes as suggest_probes
