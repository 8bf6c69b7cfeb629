package settings

// guarded is a name that is never written, because something outside of the box reads
// it as an order: a hook, a start-up file, the configuration of an editor or agent. Names without a leading "~/" or "/"
// hold in every directory below the writable ones.
type guarded struct {
	rule  string
	names []string
}

// runLater are the names. A Makefile, a package.json or a script is not among them: those are what
// an agent is asked to write, and a person who runs them means to. Neither is .github/workflows: it acts on another
// machine, after a push that a person looks at.
var runLater = []guarded{
	{"git hooks", []string{".git/hooks", ".git/modules/*/hooks", ".git/modules/*/*/hooks", ".git/worktrees/*/hooks", ".husky", ".githooks", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", ".overcommit.yml"}},
	{"git configuration", []string{".git/config", ".git/config.worktree", ".git/commondir", ".git/modules/*/config", ".git/modules/*/*/config", ".git/modules/*/commondir", ".git/worktrees/*/config.worktree", ".git/worktrees/*/commondir", ".gitconfig", ".gitmodules"}},
	{"shell start-up files", []string{
		".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".xinitrc", ".xsession", ".xprofile", ".pam_environment", ".envrc", ".direnv", ".direnvrc", ".mise.toml", "mise.toml", ".tool-versions", ".autoenv", ".autoenv.zsh",
	}},
	{"tool start-up files", []string{
		".ripgreprc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".yarnrc.yaml", ".pnpmfile.cjs", ".pypirc", ".pythonrc", ".pythonstartup", ".curlrc", ".wgetrc", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".gvimrc", ".emacs", ".dir-locals.el", ".gdbinit", ".lldbinit", ".sqliterc", ".psqlrc", ".screenrc", ".tmux.conf", ".irbrc", ".pryrc", ".Rprofile", ".cargo/config", ".cargo/config.toml", ".bazelrc.user", ".ssh",
	}},
	{"editor configuration", []string{".vscode", ".idea", ".zed", ".fleet", ".sublime-project", "*.code-workspace", "*.sublime-project", ".devcontainer", ".devcontainer.json"}},
	{"agent configuration", []string{
		".mcp.json", "mcp.json", ".cursor", ".cursorrules", ".cursorignore", ".claude/settings.json", ".claude/settings.local.json", ".claude/commands", ".claude/agents", ".claude/hooks", ".claude/skills", ".claude/plugins", ".claude/output-styles", ".codex", ".gemini", ".aider*", ".continue", ".windsurf", ".windsurfrules", ".roo", ".roomodes", ".cline", ".clinerules", ".opencode", "opencode.json", "opencode.jsonc", ".goose", ".goosehints", ".amazonq", ".kiro", ".junie", ".crush.json", "crush.json", ".qwen", ".factory", ".augment",
	}},
	{"carrel's settings", []string{".carrel.yaml"}},
}

// runLaterHome are names of the home directory alone. They matter when it was made writable.
var runLaterHome = []guarded{
	{"programs in the home directory", []string{"~/bin", "~/.local/bin", "~/.cargo/bin", "~/go/bin", "~/.npm-global", "~/.bun/bin", "~/.deno/bin", "~/.pyenv", "~/.rbenv", "~/.nvm", "~/.asdf", "~/.volta", "~/.sdkman", "~/.rustup", "~/.local/lib", "~/.local/share/mise", "~/.nix-profile"}},
	{"session start-up files", []string{
		"~/.config/autostart", "~/.config/systemd", "~/.config/environment.d", "~/.config/fish", "~/.config/zsh", "~/.config/bash", "~/.config/nushell", "~/.config/direnv", "~/.config/mise", "~/.local/share/applications", "~/.local/share/systemd", "~/.local/share/dbus-1", "~/.local/share/xsessions", "~/.config/plasma-workspace", "~/.config/i3", "~/.config/sway", "~/.config/hypr", "~/.config/awesome", "~/.config/openbox", "~/.oh-my-zsh", "~/.zsh", "~/.fzf", "~/.crontab", "~/.forward", "~/.procmailrc", "~/.qmail",
		"~/Library/LaunchAgents", "~/Library/Application Scripts", "~/Library/Services", "~/Library/Workflows", "~/.hammerspoon", "~/.config/karabiner",
	}},
	{"tool configuration", []string{
		"~/.config/git", "~/.config/nvim", "~/.vim", "~/.config/vim", "~/.emacs.d", "~/.config/emacs", "~/.doom.d", "~/.config/Code", "~/.vscode-server", "~/.config/zed", "~/.config/tmux", "~/.config/alacritty", "~/.config/kitty", "~/.config/wezterm", "~/.config/pip", "~/.config/gdb", "~/.config/ripgrep", "~/.docker", "~/.config/containers", "~/.config/carrel", "~/.local/state/carrel", "~/.ipython", "~/.jupyter", "~/.gradle/init.d", "~/.m2/settings.xml", "~/.config/gtk-3.0",
	}},
}
