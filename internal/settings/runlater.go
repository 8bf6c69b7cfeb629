package settings

// guarded is a name that is never written, because a program outside the box obeys it: a hook, a
// start-up file, the configuration of an editor or agent. Names without a leading "~/" or "/" hold
// in every directory below the writable ones.
type guarded struct {
	rule  string
	names []string
}

// runLater are the names. Files that agents are asked to write are not among them: a Makefile, a
// package.json, a script. A person runs those on purpose. Neither is .github/workflows: it acts on
// another machine, after a push that a person reviews. The names here act when somebody only
// changes to the directory, opens it in an editor or agent, or starts a shell, an interpreter or a
// debugger there.
var runLater = []guarded{
	{"git hooks", []string{".git/hooks", ".git/modules/*/hooks", ".git/modules/*/*/hooks", ".git/worktrees/*/hooks", ".husky", ".huskyrc*", ".githooks", ".git-hooks", ".simple-git-hooks.*", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", "lefthook-local.yml", ".lefthook-local.yml", ".lefthook", ".lefthook-local", ".overcommit.yml", ".hg/hgrc", ".hgrc", ".jj/repo/config.toml", ".jjconfig.toml"}},
	{"git configuration", []string{".git/config", ".git/config.worktree", ".git/commondir", ".git/modules/*/config", ".git/modules/*/*/config", ".git/modules/*/commondir", ".git/worktrees/*/config.worktree", ".git/worktrees/*/commondir", ".gitconfig", ".gitmodules"}},
	{"shell start-up files", []string{
		".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".xonshrc", ".oshrc", ".inputrc", ".xinitrc", ".xsession", ".xsessionrc", ".xprofile", ".pam_environment",
		".envrc", ".direnv", ".direnvrc", ".mise", ".mise.toml", ".mise.*.toml", "mise.toml", "mise.*.toml", "mise/config.toml", ".config/mise.toml", ".config/mise", ".rtx.toml", ".rtx.*.toml", ".tool-versions", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".bash_smartcd_enter", ".bash_smartcd_leave", ".shadowenv.d", ".rvmrc", ".rbenv-vars", ".ondir", ".ondirrc",
	}},
	{"tool start-up files", []string{
		".ripgreprc", ".ackrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".yarnrc.yaml", ".pnpmfile.cjs", ".pnpmfile.mjs", ".pypirc", ".condarc", ".mambarc", ".pydistutils.cfg", ".curlrc", ".wgetrc", ".netrc", ".lftprc", ".mailrc", ".mailcap", ".lesskey", ".less", ".nanorc", ".screenrc", ".tmux.conf", ".tmuxinator.yml", ".cargo/config", ".cargo/config.toml", ".bazelrc.user", ".mavenrc", ".ansible.cfg", ".arcrc", ".valgrindrc", ".perfconfig", ".xcode.env.local", ".ssh",
	}},
	{"interpreters' start-up files", []string{
		".pythonrc", ".pythonrc.py", ".pythonstartup", ".pdbrc", ".pdbrc.py", "ipython_config.py", "jupyter_notebook_config.py", "jupyter_server_config.py", "jupyter_lab_config.py", ".irbrc", ".pryrc", ".rdbgrc", ".rdbgrc.rb", ".byebugrc", ".Rprofile", ".Renviron", ".RData", ".Rprofile.site", ".Renviron.site",
		".ghci", ".ocamlinit", ".utoprc", ".iex.exs", ".erlang", ".octaverc", "startup.m", "finish.m", ".scilab", "scilab.ini", ".juliarc.jl", ".perldb", ".replyrc", ".psysh.php", ".phprc", ".tclshrc", ".wishrc", ".sbclrc", ".clisprc", ".clisprc.lisp", ".cmucl-init.lisp", "ccl-init.lisp", ".ccl-init.lisp", ".eclrc", ".abclrc", ".guile", ".racketrc", ".scheme.init", ".swiplrc", ".plrc", ".gforthrc", ".factor-rc", ".factor-boot-rc", ".coqrc", ".gnuplot", ".gprc", ".gaprc", ".magmarc", ".sage", ".croprc", ".nodereplrc", ".node_repl.js", ".scalarc", ".groovyrc",
	}},
	{"debuggers' start-up files", []string{".gdbinit", ".gdbearlyinit", ".lldbinit", ".lldbinit-*", ".cgdbrc", ".radare2rc", ".rizinrc", ".dbxrc", ".windbgrc", ".frida"}},
	{"databases' start-up files", []string{".sqliterc", ".psqlrc", ".duckdbrc", ".mongorc.js", ".mongoshrc.js", ".my.cnf", ".usqlrc", ".pgclirc", ".sqshrc", ".redisclirc"}},
	{"editor configuration", []string{
		".vscode", ".vscode-server", ".vs", ".idea", ".zed", ".fleet", ".lapce", ".nova", ".theia", ".helix", ".sublime-project", "*.code-workspace", "*.sublime-project", ".devcontainer", ".devcontainer.json", ".externalToolBuilders",
		".vimrc", ".vimrc.local", ".vimrc.lua", "_vimrc", ".exrc", ".exrc.lua", "_exrc", ".gvimrc", "_gvimrc", ".nvimrc", ".nvimrc.lua", ".nvim.lua", ".nvim", ".vim", ".lvimrc", ".local.vimrc", ".lazy.lua", ".neoconf.json", ".nvim-dap.lua", ".ycm_extra_conf.py", ".emacs", ".emacs.el", ".emacs.d", ".dir-locals.el", ".dir-locals-2.el", ".kakrc", ".kak", ".jedrc", ".joerc",
		".luarc.json", ".luarc.jsonc", "rust-analyzer.toml", ".rust-analyzer.toml", ".solargraph.yml",
	}},
	{"agent configuration", []string{
		".mcp.json", "mcp.json", ".mcp", ".cursor", ".cursorrules", ".cursorignore", ".claude/settings.json", ".claude/settings.local.json", ".claude/commands", ".claude/agents", ".claude/hooks", ".claude/skills", ".claude/plugins", ".claude/output-styles", ".claude/rules", ".claude/workflows", ".claude-plugin",
		".codex", ".agents", ".agent", ".gemini", ".aider*", ".continue", ".continuerc.json", ".windsurf", ".windsurfrules", ".roo", ".roomodes", ".kilocode", ".kilocodemodes", ".cline", ".clinerules", ".opencode", "opencode.json", "opencode.jsonc", ".goose", ".goosehints", ".amazonq", ".kiro", ".junie", ".crush.json", "crush.json", ".crush", ".qwen", ".factory", ".augment", ".trae", ".void", ".tabnine", ".codeium", ".amp", ".openhands", ".openhands_instructions", ".rovodev", ".zencoder", ".codebuddy", ".iflow", ".lingma", ".antigravity", ".firebender", ".plandex", ".sourcegraph", ".cody", ".mentat_config.json", ".grok", ".copilot", ".warp", ".vibe", ".auggie",
	}},
	{"carrel's settings", []string{".carrel.yaml"}},
}

// runLaterHome are names in the home directory only. They matter if the home is writable.
var runLaterHome = []guarded{
	{"programs in the home directory", []string{
		"~/bin", "~/.bin", "~/.local/bin", "~/.cargo/bin", "~/go/bin", "~/.npm-global", "~/.bun/bin", "~/.deno/bin", "~/.local/lib", "~/.nix-profile", "~/.guix-profile", "~/.yarn/bin", "~/.config/yarn/global", "~/.local/share/pnpm/global", "~/.composer/vendor", "~/.config/composer/vendor", "~/.dotnet/tools", "~/.pub-cache/bin", "~/.cabal/bin", "~/.ghcup", "~/.opam", "~/.luarocks", "~/perl5", "~/.krew", "~/.pixi/bin", "~/.poetry/bin", "~/.local/pipx", "~/.local/share/pipx", "~/.local/share/uv/tools", "~/.linuxbrew", "~/.mix/escripts", "~/.mix/archives", "~/.nimble/bin", "~/.foundry/bin",
		"~/.pyenv", "~/.rbenv", "~/.rvm", "~/.nvm", "~/.nodenv", "~/.fnm", "~/.local/share/fnm", "~/.asdf", "~/.volta", "~/.sdkman", "~/.jenv", "~/.jabba", "~/.goenv", "~/.gvm", "~/.plenv", "~/.phpenv", "~/.phpbrew", "~/.tfenv", "~/.tgenv", "~/.swiftenv", "~/.swiftly", "~/.rustup", "~/.proto", "~/.local/share/mise", "~/.local/share/rtx", "~/.local/share/aquaproj-aqua", "~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba",
	}},
	{"session start-up files", []string{
		"~/.config/autostart", "~/.config/autostart-scripts", "~/.config/systemd", "~/.config/environment.d", "~/.config/fish", "~/.config/zsh", "~/.config/bash", "~/.config/nushell", "~/.config/elvish", "~/.elvish", "~/.config/xonsh", "~/.config/powershell", "~/.config/oils", "~/.config/direnv", "~/.config/mise", "~/.config/rtx", "~/.config/starship.toml", "~/.config/atuin", "~/.config/user-dirs.dirs", "~/.config/user-dirs.locale", "~/.config/locale.conf", "~/.i18n", "~/.selected_editor",
		"~/.bashrc.d", "~/.bash.d", "~/.zshrc.d", "~/.zsh.d", "~/.profile.d", "~/.bash_completion", "~/.bash_completion.d", "~/.local/share/bash-completion", "~/.bash_it", "~/.oh-my-bash", "~/.oh-my-zsh", "~/.oh-my-posh", "~/.zsh", "~/.zfunc", "~/.zsh_functions", "~/.zplug", "~/.zinit", "~/.local/share/zinit", "~/.zprezto", "~/.zpreztorc", "~/.zim", "~/.zimrc", "~/.antigen", "~/.antidote", "~/.p10k.zsh", "~/.zcompdump", "~/.fzf", "~/.fzf.bash", "~/.fzf.zsh", "~/.local/share/fish/vendor_conf.d", "~/.liquidprompt",
		"~/.local/share/applications", "~/.local/share/systemd", "~/.local/share/dbus-1", "~/.local/share/xsessions", "~/.local/share/gnome-shell", "~/.local/share/cinnamon", "~/.local/share/plasma", "~/.local/share/kwin", "~/.local/share/kio", "~/.local/share/kservices5", "~/.local/share/nautilus", "~/.local/share/nemo", "~/.local/share/caja-python", "~/.config/plasma-workspace", "~/.config/plasma-org.kde.plasma.desktop-appletsrc", "~/.kde", "~/.kde4", "~/.config/i3", "~/.i3", "~/.config/sway", "~/.config/hypr", "~/.config/awesome", "~/.config/openbox", "~/.config/bspwm", "~/.config/sxhkd", "~/.config/qtile", "~/.config/xmonad", "~/.xmonad", "~/.config/river", "~/.config/niri", "~/.config/labwc", "~/.config/wayfire.ini", "~/.config/herbstluftwm", "~/.config/leftwm", "~/.fluxbox", "~/.icewm", "~/.config/polybar", "~/.config/waybar", "~/.config/rofi", "~/.config/dunst", "~/.config/picom", "~/.config/kanshi", "~/.xbindkeysrc", "~/.xbindkeysrc.scm", "~/.Xresources", "~/.Xdefaults", "~/.Xmodmap", "~/.gnomerc", "~/.dmrc", "~/.vnc", "~/.config/mimeapps.list",
		"~/.crontab", "~/.forward", "~/.procmailrc", "~/.maildrop", "~/.qmail", "~/.rhosts",
		"~/Library/LaunchAgents", "~/Library/Application Scripts", "~/Library/Services", "~/Library/Workflows", "~/Library/Scripts", "~/Library/QuickLook", "~/Library/Spotlight", "~/.hammerspoon", "~/.config/karabiner", "~/.yabairc", "~/.config/yabai", "~/.skhdrc", "~/.config/skhd", "~/.config/aerospace", "~/.aerospace.toml",
	}},
	{"tool configuration", []string{
		"~/.config/git", "~/.config/hg", "~/.config/jj", "~/.config/gh", "~/.config/tig", "~/.tigrc", "~/.config/lazygit", "~/.config/nvim", "~/.config/lvim", "~/.local/share/nvim", "~/.local/share/lunarvim", "~/.SpaceVim.d", "~/.config/vim", "~/.config/emacs", "~/.spacemacs", "~/.spacemacs.d", "~/.doom.d", "~/.config/doom", "~/.config/helix", "~/.config/kak", "~/.config/kak-lsp", "~/.config/micro", "~/.config/lapce-stable", "~/.config/Code", "~/.config/VSCodium", "~/.vscode-oss", "~/.cursor-server", "~/.config/sublime-text", "~/.config/sublime-text-3", "~/.config/JetBrains", "~/.local/share/JetBrains", "~/.config/zed", "~/.config/eclipse",
		"~/.config/tmux", "~/.tmux", "~/.config/zellij", "~/.byobu", "~/.config/tmuxinator", "~/.config/alacritty", "~/.alacritty.toml", "~/.alacritty.yml", "~/.config/kitty", "~/.config/wezterm", "~/.wezterm.lua", "~/.config/ghostty", "~/.config/foot", "~/.config/terminator", "~/.config/bat", "~/.config/lf", "~/.config/ranger", "~/.config/nnn", "~/.config/yazi", "~/.config/mc", "~/.config/mpv", "~/.config/vifm", "~/.vifm", "~/.config/ripgrep", "~/.config/lesskey", "~/.config/newsboat", "~/.taskrc", "~/.task/hooks", "~/.config/task",
		"~/.config/pip", "~/.pip", "~/.config/uv", "~/.config/pypoetry", "~/.config/gdb", "~/.config/dlv", "~/.dlv", "~/.gef.rc", "~/.config/radare2", "~/.config/rizin", "~/.config/psysh", "~/.config/irb", "~/.config/pry", "~/.config/utop", "~/.config/ocaml", "~/.config/octave", "~/.config/julia", "~/.julia/config", "~/.julia/environments", "~/.config/swi-prolog", "~/.config/guile", "~/.config/racket", "~/.config/rebar3", "~/.ghc", "~/.config/ghc", "~/.stack/config.yaml", "~/.cabal/config", "~/.lein/profiles.clj", "~/.clojure", "~/.config/clojure", "~/.sbt", "~/.groovy", "~/.ammonite", "~/.ipython", "~/.jupyter", "~/.config/matplotlib", "~/.sage", "~/.maxima",
		"~/.gradle/init.d", "~/.gradle/init.gradle", "~/.gradle/init.gradle.kts", "~/.gradle/gradle.properties", "~/.m2/settings.xml", "~/.m2/extensions.xml", "~/.m2/toolchains.xml", "~/.bundle/config", "~/.gemrc", "~/.config/go", "~/.config/nix", "~/.config/nixpkgs", "~/.config/home-manager", "~/.nix-defexpr", "~/.config/guix", "~/.terraformrc", "~/.terraform.d", "~/.vagrant.d", "~/.packer.d", "~/.ansible", "~/.docker", "~/.config/containers", "~/.config/k9s", "~/.kube", "~/.config/helm", "~/.aws/cli", "~/.aws/config", "~/.config/gcloud", "~/.gnupg", "~/.config/gtk-3.0", "~/.config/gtk-4.0", "~/.config/crush", "~/.config/opencode", "~/.config/amp", "~/.config/goose", "~/.config/github-copilot", "~/.config/carrel", "~/.local/state/carrel",
	}},
}

// ownPlaces closes the directories of Carrel's own settings and state if the environment puts them
// in other places. A box that could write there would trust its own project file, or choose the
// destination of files that are taken from it.
func (v *resolver) ownPlaces() {
	for _, own := range []struct {
		dir, usual string
		op         operation
	}{{v.configDir(), v.home + "/.config/carrel", writeDeny}, {v.stateDir(), v.home + "/.local/state/carrel", readDeny}} {
		dir := v.real(own.dir)
		if dir == own.usual || dir == "/" || v.inPrivate(dir) {
			continue
		}
		const rule = "carrel's settings"
		v.guarded = append(v.guarded, Protected{Pattern: dir, Rule: "built-in: " + rule, Source: "built-in"})
		if v.exists(dir) {
			v.closeBuiltIn(dir, own.op, rule, false)
		}
	}
}
