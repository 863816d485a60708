"""Score translations with sacreBLEU's metrics, with intervals and significance."""
