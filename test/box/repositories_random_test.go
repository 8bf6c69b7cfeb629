package box_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// randomHostile makes a random case: a way to set a trap, a way to plant it, and a place.
func randomHostile(r *rand.Rand, n int) hostile {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	payload := pick(
		"arm G/config",
		`mkdir -p G/hooks; printf '#!/bin/sh\ntouch %s\n' "$RAN" >G/hooks/post-index-change; cp G/hooks/post-index-change G/hooks/pre-commit; chmod 755 G/hooks/*`,
		`arm $C/evil; printf '[include]\n\tpath = %s\n' $C/evil >>G/config`,
		`arm $C/evil; printf '[includeIf "gitdir:**"]\n\tpath = %s\n' $C/evil >>G/config`,
		`printf '[extensions]\n\tworktreeConfig = true\n' >>G/config; arm G/config.worktree`,
		`printf '[core]\n\thooksPath = %s\n' $C/h >>G/config; mkdir $C/h; printf '#!/bin/sh\ntouch %s\n' "$RAN" >$C/h/pre-commit; chmod 755 $C/h/pre-commit`,
		`printf '[diff]\n\texternal = "touch %s; true"\n' "$RAN" >>G/config`,
		`arm $C/evil; cat G/config >>$C/evil; rm G/config; `+pick("ln", "ln -s")+` $C/evil G/config`,
	)
	store := "$C/" + pick("s", "s/HEAD", "objects/ab", "node_modules/x", "k/.git/modules/a/b/c/d", "1/2/3/4/5/6/7/8")
	at := pick("w", "a/b/w", "node_modules/w", ".git/w", "w w")
	place := pick(
		`mv G "$C/$W/.git"`,
		`ln -s G "$C/$W/.git"`,
		`echo "gitdir: G" >"$C/$W/.git"`,
		`ln -s G "$C/$W/l"; echo "gitdir: l" >"$C/$W/.git"`,
		`mkdir "$C/t"; mv G "$C/t/.git"; rmdir "$C/$W"; mv "$C/t" "$C/$W"`,
		`mkdir "$C/g"; cp G/HEAD G/index "$C/g"; echo G >"$C/g/commondir"; echo "$C/$W/.git" >"$C/g/gitdir"; echo "gitdir: $C/g" >"$C/$W/.git"`,
	)
	script := `C=$PWD; W='` + at + `'; mkdir -p G "$C/$W"; cp -r $SEED/. G; echo new >"$C/$W/a.txt"; ` + payload + "; " + place
	return hostile{name: "random " + strconv.Itoa(n), plant: strings.ReplaceAll(script, "G", store), at: at}
}

// TestRepositoriesRandom plants random repositories, many in each box, and uses git in them.
// CARREL_REPOSITORIES sets their number.
func TestRepositoriesRandom(t *testing.T) {
	_, err := exec.LookPath("git")
	testenv.Need(t, "git", err)
	perBox, tries := 75, 10_000
	if testing.Short() {
		perBox, tries = 20, 40
	}
	if n, err := strconv.Atoi(os.Getenv("CARREL_REPOSITORIES")); err == nil {
		tries = n
	}
	t.Run("unboxed", func(t *testing.T) { // the cases are worth something
		both(t, func(t *testing.T, w *world) {
			if n := plantRandom(t, w, "unboxed", 0, perBox); len(n) < perBox/2 {
				t.Errorf("%d of %d run where nothing is in their way", len(n), perBox)
			} else {
				t.Logf("%d of %d run", len(n), perBox)
			}
		})
	})
	for from := 0; from < tries; from += 2 * perBox {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			both(t, func(t *testing.T, w *world) {
				way := "plain"
				if from/(2*perBox)%4 == 3 {
					way = "overlay"
				}
				for _, log := range plantRandom(t, w, way, from, perBox) {
					t.Error(log)
				}
			})
		})
	}
}

// plantRandom plants n random cases and returns those that ran outside.
func plantRandom(t *testing.T, w *world, way string, from, n int) (ran []string) {
	t.Helper()
	seed(w)
	r := rand.New(rand.NewPCG(uint64(from), uint64(w.uid)))
	var cases []hostile
	for i := range n {
		cases = append(cases, randomHostile(r, i))
	}
	plantAll(w, way, ways()[way], cases)
	for _, c := range cases {
		if did, log := useGit(w, c); did {
			ran = append(ran, fmt.Sprintf("%s ran: %s\n%s", c.name, c.plant, log))
		}
	}
	return ran
}
