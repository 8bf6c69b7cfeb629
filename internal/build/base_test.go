package build

import "testing"

func TestSDKBase(t *testing.T) {
	for ref, want := range map[string]bool{
		"e2bdev/base": true, "e2bdev/base:latest": true, "docker.io/e2bdev/base": true,
		"docker.io/e2bdev/base:1.0": true, "": false, "base": false, "e2bdev/base2": false,
		"e2bdev/code-interpreter": false, "registry.example.com/e2bdev/base": false,
		"e2bdev/base@sha256:0123": false,
	} {
		if got := isSDKBase(ref); got != want {
			t.Errorf("%q: %v", ref, got)
		}
	}
}
