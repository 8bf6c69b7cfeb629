//go:build linux

package box_test

import (
	"os"
	"testing"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/box/stagebin"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// BenchmarkTrue measures a whole box: built, one program run, ended.
func BenchmarkTrue(b *testing.B) {
	stage, err := stagebin.File()
	testenv.Need(b, "build", err)
	defer stage.Close()
	s := plain("/bin/true")
	for b.Loop() {
		x, err := box.Start(b.Context(), s, box.Options{Stage: stage, Stderr: os.Stderr})
		if err != nil {
			b.Fatal(err)
		}
		if e, err := x.Wait(); err != nil || e.Code != 0 {
			b.Fatal(e, err)
		}
	}
}

// BenchmarkStage measures making the stage's file.
func BenchmarkStage(b *testing.B) {
	for b.Loop() {
		stage, err := stagebin.File()
		testenv.Need(b, "build", err)
		_ = stage.Close()
	}
}
