//go:build linux

package proc

import (
	"os"
	"testing"
)

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a) b) S 0 1 1 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 9 0 1234 5 6"))
	f.Add([]byte("1 ()"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStat(b); err != nil && s != (Stat{}) {
			t.Errorf("%+v with %v", s, err)
		}
	})
}

func TestParseStatSkipsHostileNames(t *testing.T) {
	s, err := parseStat([]byte("1 (x) S 9) S 0 1 1 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 9 0 1234 5 6"))
	if err != nil || s.Started != 1234 || s.Threads != 9 || s.CPU.Milliseconds() != 1100 {
		t.Errorf("%+v %v", s, err)
	}
	self, err := ReadStat(os.Getpid())
	if err != nil || self.Started == 0 || self.Threads < 1 {
		t.Errorf("own: %+v %v", self, err)
	}
}
