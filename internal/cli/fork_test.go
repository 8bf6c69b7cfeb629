package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestForkBatches shows that many forks take several requests, all for the same moment. When the
// quota is reached, no other request is sent, and the finished forks are listed or removed.
func TestForkBatches(t *testing.T) {
	f := &fake{box: carrel.Sandbox{ID: boxID, State: carrel.Running}, room: 250}
	got := f.run(t, "fork", string(boxID), "-n", "250")
	if got.code != 0 || strings.Count(got.out, "\n") != 250 || !strings.Contains(got.err, "carrel: 200 of 250 forks are made\n") {
		t.Errorf("250 forks: %v", got)
	}
	at := string(snapID(7))
	want := []string{"fork {Count:100 At: Timeout:0s FilesOnly:false}",
		"fork {Count:100 At:" + at + " Timeout:0s FilesOnly:false}",
		"fork {Count:50 At:" + at + " Timeout:0s FilesOnly:false}"}
	if fmt.Sprint(f.calls) != fmt.Sprint(want) {
		t.Errorf("asked for %v, want %v", f.calls, want)
	}
	f.calls, f.room = nil, 149
	got = f.run(t, "fork", string(boxID), "-n", "1000")
	if got.code != 1 || strings.Count(got.out, "\n") != 149 || strings.Count(got.err, "all 150 that may live do") != 1 ||
		!strings.Contains(got.err, "carrel: 149 of 1000 forks were made and stay\n") || len(f.calls) != 2 {
		t.Errorf("1000 forks, with room for 149: %v, %v", got, f.calls)
	}
	f.calls, f.room = nil, 149
	got = f.run(t, "fork", string(boxID), "-n", "200", "--all-or-nothing")
	if got.code != 1 || got.out != "" || !strings.Contains(got.err, "149 of 200 forks could be made; 149 of these were removed again") || f.killed() != 149 {
		t.Errorf("200 forks or none, with room for 149: %v, %d killed", got, f.killed())
	}
	f.calls, f.room = nil, 3
	got = f.run(t, "--json", "fork", string(boxID), "-n", "3", "--all-or-nothing")
	if got.code != 0 || strings.Count(got.out, `"id":`) != 3 || !strings.Contains(got.out, `"wanted":3`) || f.killed() != 0 {
		t.Errorf("3 forks or none: %v", got)
	}
}

// killed returns the number of sandboxes that were killed.
func (f *fake) killed() (n int) {
	for _, c := range f.calls {
		if strings.HasPrefix(c, "kill ") {
			n++
		}
	}
	return n
}
