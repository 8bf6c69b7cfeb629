//go:build linux

package hosted

import "testing"

// TestMTUFollowsTheBuffer checks the frame size for buffers of each class.
func TestMTUFollowsTheBuffer(t *testing.T) {
	for buffer, want := range map[int]int{0: smallMTU, 425_984: smallMTU, 2 << 20: midMTU, 16 << 20: BigMTU} {
		if got := pairMTU(buffer); got != want {
			t.Errorf("buffer %d: frames of %d, want %d", buffer, got, want)
		}
	}
}
