package failure

import "strings"

// grams remembers which sequences of four bytes a text has, so that most of the many words that
// it lacks are ruled out without searching it for each. It never rules out one that is there.
type grams struct {
	text string
	seen [128]uint64
}

const gramLength = 4

func (g *grams) read(text string) {
	g.text = text
	for at := 0; at+gramLength <= len(text); at++ {
		bit := gram(text[at:])
		g.seen[bit/64] |= 1 << (bit % 64)
	}
}

// contains reports whether the text has the part.
func (g *grams) contains(part string) bool {
	if last := len(part) - gramLength; last >= 0 && (!g.has(part) || !g.has(part[last:])) {
		return false
	}
	return strings.Contains(g.text, part)
}

func (g *grams) containsAny(parts []string) bool {
	for _, part := range parts {
		if g.contains(part) {
			return true
		}
	}
	return false
}

func (g *grams) has(part string) bool {
	bit := gram(part)
	return g.seen[bit/64]&(1<<(bit%64)) != 0
}

// gram is a hash of the first four bytes of text, below the number of bits.
func gram(text string) uint32 {
	four := uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
	return four * 0x9E3779B1 >> 19
}
