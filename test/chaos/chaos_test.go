package chaos

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var errNotYet = errors.New("not yet")

// kinds are all trials, in the order in which they run.
var kinds = []kind{
	{"kill", true, killTrial},
	{"keeper", false, keeperTrial},
	{"stop", false, stopTrial},
	{"user", false, userTrial},
	{"power", true, powerTrial},
	{"answer", false, answerTrial},
	{"full", false, fullTrial},
	{"inodes", false, inodesTrial},
	{"records", false, recordsTrial},
	{"text", false, textTrial},
	{"lost", false, lostTrial},
	{"returned", false, returnedTrial},
	{"corrupt", false, corruptTrial},
	{"hot", false, hotTrial},
	{"packs", false, packsTrial},
	{"template", false, templateTrial},
	{"move", false, moveTrial},
	{"copy", false, copyTrial},
	{"s3", false, s3Trial},
	{"backup", false, backupTrial},
	{"sdk", false, sdkTrial},
	{"builds", false, buildsTrial},
}

// chosen returns the kinds that the flags name.
func chosen(t *testing.T) []kind {
	if *only == "" {
		return slices.DeleteFunc(slices.Clone(kinds),
			func(k kind) bool { return testing.Short() && !k.short })
	}
	var out []kind
	for name := range strings.SplitSeq(*only, ",") {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
		if i < 0 {
			t.Fatalf("there is no trial %q", name)
		}
		out = append(out, kinds[i])
	}
	return out
}

// TestChaos runs each trial, again and again until -duration is over.
func TestChaos(t *testing.T) {
	together(t)
	if _, err := os.Stat(builtBinary()); err != nil {
		t.Fatalf("%v (build it with: make build)", err)
	}
	list, begin, trials, bad, own := chosen(t), time.Now(), 0, 0, 0
	for round := uint64(0); round == 0 || time.Since(begin) < *duration; round++ {
		for _, k := range list {
			if round > 0 && time.Since(begin) >= *duration {
				break
			}
			r := runTrial(t, k, *seedFlag+round, "")
			fmt.Println(r.line)
			fmt.Print(join(r.violations))
			switch {
			case r.own != "":
				own++
				fmt.Println("  the trial itself: " + r.own)
			case r.skipped == "":
				trials++
			}
			bad += len(r.violations)
		}
	}
	fmt.Printf("%d violations in %d trials\n", bad, trials)
	if bad > 0 {
		t.Errorf("%d violations; the lines above have the seeds", bad)
	}
	if own > 0 {
		fmt.Printf("%d more trials could not do their own part\n", own)
		t.Errorf("%d trials could not do their own part; that is no finding", own)
	}
}
