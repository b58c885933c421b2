package sse

// AppendData appends data to dst as one event in the plain form. Line feeds, which in JSON
// can only be space between tokens, become spaces, so that clients that read line by line
// understand it too.
func AppendData(dst, data []byte) []byte {
	dst = append(dst, plainPrefix...)
	from := len(dst)
	dst = append(dst, data...)
	for i := from; i < len(dst); i++ {
		if dst[i] == '\n' {
			dst[i] = ' '
		}
	}
	return append(dst, '\n', '\n')
}
