package text

import "math"

// A paragraph is broken into lines as D. E. Knuth and M. F. Plass describe in "Breaking Paragraphs
// into Lines" (1981). The breaks are not chosen line by line: they make the sum of the costs of all
// lines least. The cost of a line is the square of its distance from the goal in columns, with the
// adjustments below.
//
// The adjustments follow the promises of fmt's manual: fmt prefers a break after a sentence, and
// avoids a break after the first or before the last word of a sentence. Either counts like a line
// that misses the goal by a seventh.
const adjustedPart = 7

// fillWord is a word of a paragraph.
type fillWord struct {
	text        []byte
	gap         int  // columns between it and the next word on the same line
	endSentence bool // a sentence ends here
}

// filler breaks paragraphs.
type filler struct {
	width, goal int
	step        func(n int) bool
}

// fill returns the index of the first word of each line, and finally the number of words. first and
// other are the indentations of the first line and of the others. ok is false when the process is
// being ended.
func (f *filler) fill(words []fillWord, first, other int) (starts []int, ok bool) {
	n := len(words)
	cost := make([]int, n+1) // of the best lines for the words from this one on
	next := make([]int, n)   // first word of the second of these lines
	for i := n - 1; i >= 0; i-- {
		indent := other
		if i == 0 {
			indent = first
		}
		cost[i] = math.MaxInt
		length := indent
		for j := i; j < n; j++ {
			if length += len(words[j].text); length > f.width && j > i {
				break
			}
			if c := f.lineCost(length, j+1 == n) + f.breakCost(words, j+1) + cost[j+1]; c < cost[i] {
				cost[i], next[i] = c, j+1
			}
			length += words[j].gap
		}
		if !f.step(1 + next[i] - i) {
			return nil, false
		}
	}
	for i := 0; i < n; i = next[i] {
		starts = append(starts, i)
	}
	return append(starts, n), true
}

// lineCost returns the cost of a line's length. The last line of a paragraph may be short.
func (f *filler) lineCost(length int, last bool) int {
	if last && length <= f.goal {
		return 0
	}
	return square(length - f.goal)
}

// breakCost returns the cost of a break before word i.
func (f *filler) breakCost(words []fillWord, i int) (cost int) {
	if i == len(words) {
		return 0
	}
	if words[i-1].endSentence {
		return -square(f.goal / adjustedPart)
	}
	if i == 1 || words[i-2].endSentence {
		cost += square(f.goal / adjustedPart)
	}
	if i+1 == len(words) || words[i].endSentence {
		cost += square(f.goal / adjustedPart)
	}
	return cost
}

func square(n int) int { return n * n }
