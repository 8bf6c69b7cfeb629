package box_test

import (
	"testing"
)

// rootOnly gives the reason why an unprivileged user can't do an attack even without the box.
func rootOnly(why string) map[string]string { return map[string]string{"user": why} }

// everybody is why nobody can.
func everybody(why string) map[string]string { return map[string]string{"all": why} }

// TestEscape is the escape suite.
func TestEscape(t *testing.T) {
	for group, cases := range map[string][]attack{
		"files": fileAttacks(), "processes": processAttacks(), "kernel": kernelAttacks(), "sockets": socketAttacks(), "names": nameAttacks(),
		"races": raceAttacks(), "bombs": bombAttacks(),
	} {
		t.Run(group, func(t *testing.T) {
			for _, a := range cases {
				t.Run(a.name, a.run)
			}
		})
	}
}
