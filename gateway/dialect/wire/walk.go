package wire

import "bytes"

// Fields walks the members of a validated JSON object in order, without allocating. Key and
// Value are views into the walked bytes.
type Fields struct {
	data []byte
	at   int
	// Key is the member's name between its quotes, escapes left as they are.
	Key []byte
	// Value is the member's value without the space around it.
	Value []byte
	// KeyAt and ValueAt are offsets of the opening quote of the key and of the value in the
	// walked bytes.
	KeyAt, ValueAt int
}

// ObjectOf starts a walk over a validated JSON object. Anything but an object has no members.
func ObjectOf(data []byte) Fields {
	at := skipSpace(data, 0)
	if at >= len(data) || data[at] != '{' {
		return Fields{data: data, at: len(data)}
	}
	return Fields{data: data, at: at + 1}
}

// Next moves to the next member and reports whether there is one.
func (f *Fields) Next() bool {
	at := skipSeparators(f.data, f.at)
	if at >= len(f.data) || f.data[at] != '"' {
		f.at = len(f.data)
		return false
	}
	end := skipString(f.data, at)
	f.KeyAt, f.Key = at, f.data[at+1:end-1]
	at = skipSeparators(f.data, end)
	end = skipValue(f.data, at)
	f.ValueAt, f.Value = at, f.data[at:end]
	f.at = end
	return true
}

// Name returns the member's key with escapes resolved.
func (f *Fields) Name() string {
	if bytes.IndexByte(f.Key, '\\') < 0 {
		return string(f.Key)
	}
	return Text(f.data[f.KeyAt : f.KeyAt+len(f.Key)+2])
}

// Is reports whether the member's key is name, whichever way it is escaped.
func (f *Fields) Is(name string) bool {
	if bytes.IndexByte(f.Key, '\\') < 0 {
		return string(f.Key) == name
	}
	return f.Name() == name
}

// Items walks the elements of a validated JSON array in order, without allocating.
type Items struct {
	data []byte
	at   int
	// Value is the element, a view into the walked bytes.
	Value []byte
}

// ArrayOf starts a walk over a validated JSON array. Anything but an array has no elements.
func ArrayOf(data []byte) Items {
	at := skipSpace(data, 0)
	if at >= len(data) || data[at] != '[' {
		return Items{data: data, at: len(data)}
	}
	return Items{data: data, at: at + 1}
}

// Next moves to the next element and reports whether there is one.
func (i *Items) Next() bool {
	at := skipSeparators(i.data, i.at)
	if at >= len(i.data) || i.data[at] == ']' {
		i.at = len(i.data)
		return false
	}
	end := skipValue(i.data, at)
	i.Value = i.data[at:end]
	i.at = end
	return true
}

// Field returns the value of an object's first member called name; nil when there is none.
func Field(data []byte, name string) []byte {
	fields := ObjectOf(data)
	for fields.Next() {
		if fields.Is(name) {
			return fields.Value
		}
	}
	return nil
}

func skipSpace(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\n' || data[at] == '\t' || data[at] == '\r') {
		at++
	}
	return at
}

// skipSeparators passes over space, commas and colons: on validated JSON nothing else can
// stand between two tokens.
func skipSeparators(data []byte, at int) int {
	for at < len(data) {
		switch data[at] {
		case ' ', '\n', '\t', '\r', ',', ':':
			at++
		default:
			return at
		}
	}
	return at
}

// skipString returns the offset after the string that opens at at.
func skipString(data []byte, at int) int {
	at++
	for at < len(data) {
		next := bytes.IndexByte(data[at:], '"')
		if next < 0 {
			return len(data)
		}
		at += next + 1
		// An odd run of backslashes before the quote escapes it.
		slashes := 0
		for i := at - 2; i >= 0 && data[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
	}
	return len(data)
}

// skipValue returns the offset after the value that starts at at.
func skipValue(data []byte, at int) int {
	if at >= len(data) {
		return len(data)
	}
	switch data[at] {
	case '"':
		return skipString(data, at)
	case '{', '[':
		depth := 0
		for at < len(data) {
			switch data[at] {
			case '"':
				at = skipString(data, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return at + 1
				}
			}
			at++
		}
		return len(data)
	default:
		for at < len(data) {
			switch data[at] {
			case ',', '}', ']', ' ', '\n', '\t', '\r':
				return at
			}
			at++
		}
		return len(data)
	}
}
