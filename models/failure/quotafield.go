package failure

import "strings"

// readFields reads a field of the IETF's draft on rate limits in each of its forms: a list of
// policies with parameters (`"burst";r=50;t=30`, `"burst";q=100;w=60`), and the older
// `limit=100, remaining=50, reset=5` and `100;w=60`, which are of everything.
func (r *limitReader) readFields(value string) {
	for _, item := range strings.Split(value, ",") {
		parts := strings.Split(item, ";")
		name := strings.Trim(strings.TrimSpace(parts[0]), `"`)
		if key, number, old := strings.Cut(name, "="); old {
			r.parameter("", strings.TrimSpace(key), number)
			continue
		}
		if _, isNumber := number(name); isNumber {
			r.parameter("", "q", name)
			name = ""
		}
		for _, part := range parts[1:] {
			if key, number, found := strings.Cut(part, "="); found {
				r.parameter(name, strings.TrimSpace(key), number)
			}
		}
	}
}

// parameter takes in one parameter of a policy: its quota, its window in seconds, what remains,
// and the seconds until it is full again.
func (r *limitReader) parameter(policy, key, value string) {
	switch strings.ToLower(key) {
	case "q", "limit":
		r.tell(policy, "limit", value)
	case "r", "remaining":
		r.tell(policy, "remaining", value)
	case "t", "reset":
		r.tell(policy, "reset", value)
	case "w":
		r.amount(policy, value, func(l *Limit, n float64) { l.Length = seconds(n) })
	}
}
