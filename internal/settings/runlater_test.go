package settings_test

import (
	"testing"

	"github.com/carrel-dev/carrel/internal/settings"
)

// startUpFiles are names in a project that a program obeys when somebody only goes there, opens the
// directory or starts the program in it.
var startUpFiles = map[string][]string{
	"version managers": {".mise.toml", ".mise.local.toml", "mise.local.toml", "mise.production.toml", ".mise/config.toml", ".config/mise.toml", ".config/mise/config.toml", "mise/config.toml", ".rtx.toml", ".tool-versions", ".rvmrc", ".rbenv-vars"},
	"environments":     {".envrc", ".shadowenv.d/a.lisp", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".ondirrc", ".bash_smartcd_enter"},
	"shells":           {".bashrc", ".zshenv", ".mkshrc", ".xonshrc", ".inputrc"},
	"editors": {
		".helix/config.toml", ".helix/languages.toml", ".dir-locals.el", ".dir-locals-2.el", ".lvimrc", ".exrc", ".exrc.lua", ".nvimrc", ".nvim.lua", ".lazy.lua", ".vim/coc-settings.json", ".neoconf.json", ".ycm_extra_conf.py", ".vscode/tasks.json", ".idea/workspace.xml", ".vs/launch.vs.json", ".zed/tasks.json", ".kakrc", "x.code-workspace", ".luarc.json", ".rust-analyzer.toml",
	},
	"interpreters": {
		".ghci", ".ocamlinit", ".utoprc", ".iex.exs", ".erlang", ".octaverc", "startup.m", ".pdbrc", ".pdbrc.py", ".pythonrc.py", "ipython_config.py", "jupyter_server_config.py", ".Rprofile", ".Renviron", ".RData", ".irbrc", ".pryrc", ".rdbgrc", ".perldb", ".psysh.php", ".tclshrc", ".sbclrc", ".guile", ".racketrc", ".swiplrc", ".gforthrc", ".gnuplot", ".juliarc.jl",
	},
	"debuggers": {".gdbinit", ".gdbearlyinit", ".lldbinit", ".lldbinit-Xcode", ".radare2rc", ".cgdbrc"},
	"databases": {".sqliterc", ".psqlrc", ".duckdbrc", ".mongoshrc.js", ".my.cnf"},
	"tools":     {".npmrc", ".pnpmfile.cjs", ".pnpmfile.mjs", ".curlrc", ".netrc", ".lesskey", ".mailcap", ".condarc", ".pydistutils.cfg", ".valgrindrc", ".bazelrc.user", ".cargo/config.toml", ".ansible.cfg"},
	"history":   {".husky/pre-commit", ".huskyrc.js", ".git-hooks/x", "lefthook-local.yml", ".hg/hgrc", ".jj/repo/config.toml"},
	"agents": {
		".mcp.json", ".cursor/mcp.json", ".claude/settings.json", ".claude/hooks/x", ".codex/config.toml", ".agents/skills/x", ".gemini/settings.json", ".roo/mcp.json", ".kilocode/mcp.json", ".kiro/x", ".trae/mcp.json", ".crush/x", ".amp/settings.json", ".openhands/setup.sh", ".copilot/x", ".grok/settings.json", ".continuerc.json",
	},
}

// ordinaryFiles look like them, but agents are asked to write them.
var ordinaryFiles = []string{
	"helix/config.toml", "mise/notes.md", "premise.toml", "mise.md", ".mise.md", "ghci", ".ghcid", "gdbinit", ".vimeo", ".viminfo.txt", "startup.py", "finish.sh", "config.toml", ".config/app.toml", "Rprofile", "data.RData", ".jj/x", ".hgignore", "my.cnf", "settings.json", "lefthook.md", ".eslintrc.js", ".prettierrc", ".editorconfig", ".nvmrc", ".python-version", ".node-version", "pyproject.toml", "Cargo.toml", "build.rs", "conftest.py", "AGENTS.md", "CLAUDE.md", ".claude/notes.md", ".gitignore", ".dockerignore", ".clang-format", "ansible.cfg",
}

// TestStartUpFiles checks names that run later outside, existing and missing ones, at the top and
// below.
func TestStartUpFiles(t *testing.T) {
	for _, there := range []bool{true, false} {
		for _, dir := range []string{"project", "project/deep/er"} {
			p := newPlace(t)
			all := append([]string{}, ordinaryFiles...)
			for _, list := range startUpFiles {
				all = append(all, list...)
			}
			for _, name := range all {
				if there {
					p.file(dir+"/"+name, "x")
				}
			}
			b := p.resolve(func(r *settings.Request) { r.NoFiles = true })
			for class, list := range startUpFiles {
				for _, name := range list {
					if a, r := b.Access(p.home + "/" + dir + "/" + name); a == writable {
						t.Errorf("%s (%s, there: %t): %s by %q", name, class, there, a, r.Rule)
					}
				}
			}
			for _, name := range ordinaryFiles {
				p.want(b, map[string]settings.Access{dir + "/" + name: writable})
			}
		}
	}
}

// TestStartUpFilesOfTheHome shows what stays closed when the home directory is opened.
func TestStartUpFilesOfTheHome(t *testing.T) {
	p := newPlace(t)
	names := []string{
		".bashrc.d/x", ".profile.d/x", ".config/fish/config.fish", ".config/powershell/profile.ps1", ".config/nushell/env.nu", ".p10k.zsh", ".config/starship.toml", ".config/user-dirs.dirs", ".selected_editor", ".local/share/bash-completion/completions/git", ".config/helix/config.toml", ".config/sublime-text/x", ".local/share/nvim/site/x", ".config/lazygit/config.yml", ".config/bat/config", ".config/mpv/scripts/x", ".config/yazi/x", ".config/zellij/x", ".config/ghostty/config",
		".julia/config/startup.jl", ".config/gdb/gdbinit", ".config/irb/irbrc", ".ghc/ghci.conf", ".stack/config.yaml", ".gradle/init.gradle", ".m2/settings.xml", ".config/uv/uv.toml", ".local/share/uv/tools/x", ".dotnet/tools/x", ".ghcup/bin/ghc", ".opam/x", ".terraform.d/plugins/x", ".config/nixpkgs/config.nix", ".config/bspwm/bspwmrc", ".xmonad/xmonad.hs", ".config/waybar/config", ".local/share/gnome-shell/extensions/x", ".Xresources", ".taskrc", ".ghci", ".gdbinit", ".pdbrc", ".Rprofile", ".my.cnf",
	}
	for _, there := range []bool{true, false} {
		if there {
			for _, n := range names {
				p.file(n, "x")
			}
		}
		b := p.resolve(flags(settings.Settings{Write: settings.PathRules{Allow: []string{"~"}}}))
		for _, n := range names {
			if a, r := b.Access(p.home + "/" + n); a == writable {
				t.Errorf("%s (there: %t): %s by %q", n, there, a, r.Rule)
			}
		}
		p.want(b, map[string]settings.Access{".cache/x": writable, "notes.txt": writable, ".config/app/x": writable})
	}
}

// TestOwnPlaces shows that Carrel's own state stays closed if the environment puts it into a
// project.
func TestOwnPlaces(t *testing.T) {
	for _, there := range []bool{true, false} {
		p := newPlace(t)
		if there {
			p.file("project/state/carrel/trust/x", "x")
			p.file("project/conf/carrel/run.yaml", "{}")
		}
		b := p.resolve(func(r *settings.Request) {
			r.Env = append(r.Env, "XDG_STATE_HOME="+p.dir+"/state", "XDG_CONFIG_HOME="+p.dir+"/conf")
		})
		for _, name := range []string{"state/carrel/trust/x", "state/carrel", "conf/carrel/run.yaml", "conf/carrel/new"} {
			if a, r := b.Access(p.dir + "/" + name); a == writable {
				t.Errorf("%s (there: %t): %s by %q", name, there, a, r.Rule)
			}
		}
		if a, _ := b.Access(p.dir + "/state/carrel/trust/x"); there && a != denied {
			t.Errorf("the trust store: %s", a)
		}
		p.want(b, map[string]settings.Access{"project/state/other": writable})
	}
}
