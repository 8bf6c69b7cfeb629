package gitdir

import "testing"

func TestHarmless(t *testing.T) {
	for text, want := range map[string]bool{
		"": true,
		"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n[remote \"o\"]\n\turl = https://example.com/x\n\tfetch = +refs/heads/*:refs/remotes/o/*\n": true,
		"# x\n; y\n[user]\nname = \"a b\"\n":     true,
		"[core]\nfsmonitor = x":                  false,
		"[core] fsmonitor = x":                   false,
		"[CORE]\nFsMonitor=x":                    false,
		"[core]bare=false\n[core] hookspath=x":   false,
		"[core][core]sshCommand = x":             false,
		"[remote \"a]\"]\nuploadpack = x":        false,
		"[remote \"a\\\"]\"] uploadpack = x":     false,
		"[remote \"x\"]\nurl = ext::sh -c x":     false,
		"[remote \"x\"]\nurl = ext\":\"\":\"sh":  false,
		"[include]\npath = x":                    false,
		"[includeIf \"gitdir:/\"]\npath = x":     false,
		"[alias]\nst = !x":                       false,
		"[submodule \"x\"]\nupdate = !x":         false,
		"[user]\nname = a\\\n\n":                 false,
		"[core":                                  false,
		"[core \"":                               false,
		"[core \"\\":                             false,
		"\xef\xbb\xbf[core]\nfsmonitor = x":      false,
		"fsmonitor = x":                          false,
		"[core.x]\nfsmonitor = x":                false,
		"[core]\n\x00fsmonitor = x":              false,
		"[filter \"lfs\"]\nclean = x":            false,
		"[credential]\nhelper = x":               false,
		"[gpg]\nprogram = x":                     false,
		"[url \"ext::x\"]\ninsteadOf = https://": false,
		"[color]\nui = auto\n[commit]\ngpgsign = false\r\n[pull]\nrebase\r\n": true,
	} {
		if got := Harmless([]byte(text), Options{}); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzHarmless(f *testing.F) {
	f.Add([]byte("[core \"a\\\"b\"] bare = x"))
	f.Fuzz(func(t *testing.T, data []byte) { Harmless(data, Options{}) })
}
