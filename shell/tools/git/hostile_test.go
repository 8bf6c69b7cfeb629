package git_test

import (
	"strings"
	"testing"
	"time"
)

// TestHostileTrees checks out trees with dangerous names. The tools themselves make the trees.
func TestHostileTrees(t *testing.T) {
	const begin = `git init -q -b main r 2>/dev/null; cd r; echo x > f; b=$(git hash-object -w f); git add f; git commit -q -m a
mk() { printf '%b' "$1" > ../t; git hash-object -t tree -w ../t; }
raw() { printf '%s' "$1" | while read -r -n2 h; do [ -n "$h" ] && printf "\\x$h"; done; }
`
	for name, mode := range map[string]string{"../evil": "100644", ".git": "40000", "..": "40000", "a/b": "100644", ".GIT": "40000"} {
		script := begin + `{ printf '` + mode + ` ` + name + `\0'; raw $b; } > ../t; h=$(git hash-object -t tree -w ../t)
c=$(printf 'tree %s\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm\n' $h | git hash-object -t commit -w --stdin)
git checkout -q $c; echo $?; git read-tree $c 2>/dev/null; cd ..; ls -A; ls r`
		out, _ := run(t, nil, script)
		if !strings.Contains(out, "128\n") || strings.Contains(out, "evil\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestSymlinks checks that a checkout never writes through a link of the previous tree.
func TestSymlinks(t *testing.T) {
	out, _ := run(t, nil, `git init -q -b main r 2>/dev/null; cd r; mkdir ../out; ln -s ../out d; git add d; git commit -q -m link; rm d; mkdir d; echo pwned > d/f; git add -A; git commit -q -m dir
git checkout -q HEAD~1; ls -l d | cut -c1; git checkout -q main; cat d/f; ls ../out; git checkout -q HEAD~1; echo x > d/g; git status -s; git checkout -q -f main; ls ../out; ls d`)
	if out != "l\npwned\ng\nf\n" {
		t.Errorf("%q", out)
	}
}

// TestHostile runs scripts that a limit must end soon.
func TestHostile(t *testing.T) {
	const begin = "git init -q -b main r 2>/dev/null; cd r; "
	for name, script := range map[string]string{
		"deep tree":     "p=d; for i in $(seq 700); do p=$p/d; done; mkdir -p $p 2>/dev/null; touch $p/f; git add .; git commit -q -m x",
		"many files":    "for i in $(seq 3000); do echo $i > f$i; done; git add .; git commit -q -m x; git status -s; git log --stat | tail -1",
		"different":     "seq 30000 > a; git add a; git commit -q -m a; seq 30000 | sort -R > a; git diff --stat",
		"same lines":    "yes | head -50000 > a; git add a; git commit -q -m a; yes | head -60000 | tr y z > a; git diff --stat",
		"many commits":  "for i in $(seq 300); do git commit -q --allow-empty -m $i; done; git log --oneline --graph | wc -l; git rev-list --count HEAD",
		"patterns":      "for i in $(seq 2000); do echo \"**/a*b*c*d*$i\" >> .gitignore; done; mkdir d; for i in $(seq 200); do touch d/aaaaaaaaaaaabbbbbbbbbbbccccccccc$i; done; git status -s | wc -l",
		"bomb":          "head -c 200000000 /dev/zero > z; git add z; git commit -q -m z; git cat-file -s :z; git diff HEAD --stat",
		"bad object":    "echo x > f; git add f; git commit -q -m x; for f in .git/objects/*/*; do chmod u+w $f; echo junk > $f; done; git log; git status; git fsck",
		"bad pack":      "mkdir -p .git/objects/pack; head -c 1000 /dev/urandom > .git/objects/pack/pack-0123456789012345678901234567890123456789.pack; cp .git/objects/pack/*.pack .git/objects/pack/pack-0123456789012345678901234567890123456789.idx; echo x > f; git add f; git commit -m x; git log",
		"bad index":     "head -c 1000 /dev/urandom > .git/index; git status; printf 'DIRC\\0\\0\\0\\2\\377\\377\\377\\377' > .git/index; git status; git add .",
		"looping ref":   "printf 'ref: refs/heads/b\\n' > .git/refs/heads/main; printf 'ref: refs/heads/main\\n' > .git/refs/heads/b; git log; git status; git branch",
		"looping alias": "git config alias.a b; git config alias.b a; git a",
		"bad config":    "printf '[core\\n' > .git/config; git status; git config x.y z; head -c 100000 /dev/urandom > .git/config; git status",
		"grep":          "yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -20000 > f; git add f; git grep -c '\\(a*\\)*b'",
		"blame":         "for i in $(seq 40); do seq $i $((i+300)) > f; git add f; git commit -q -m $i; done; git blame f | wc -l",
		"merge":         "seq 20000 > a; git add a; git commit -q -m a; git checkout -q -b x; seq 20000 | sed 's/$/x/' > a; git commit -qam x; git checkout -q main; seq 20000 | sed 's/$/y/' > a; git commit -qam y; git merge x | tail -1",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			out, _ := run(t, nil, begin+script)
			if d := time.Since(start); d > 5*time.Minute {
				t.Errorf("took %v: %.300s", d, out)
			}
			if strings.Contains(out, "panic") || strings.Contains(out, "runtime error") {
				t.Errorf("%.2000s", out)
			}
		})
	}
}
