package settings

// secret is a path that a box may not read unless a layer opens it. Paths begin with "~/" or "/";
// the last element may have "*".
type secret struct {
	rule  string
	paths []string
	blank bool
}

// secretsEverywhere are below the home directory on every system.
var secretsEverywhere = []secret{
	{rule: "ssh keys", paths: []string{"~/.ssh"}},
	{rule: "encryption keys", paths: []string{"~/.gnupg", "~/.age", "~/.config/age", "~/.config/sops", "~/.minisign", "~/.step/secrets", "~/.putty"}},
	{rule: "cloud credentials", paths: []string{
		"~/.aws", "~/.azure", "~/.config/gcloud", "~/.gsutil", "~/.boto", "~/.oci", "~/.bluemix", "~/.aliyun", "~/.tccli", "~/.hcloud",
		"~/.config/hcloud", "~/.config/doctl", "~/.config/linode-cli", "~/.config/scw", "~/.config/openstack", "~/.fly", "~/.config/flyctl",
		"~/.config/heroku", "~/.local/share/heroku", "~/.vercel", "~/.config/vercel", "~/.local/share/com.vercel.cli", "~/.netlify", "~/.config/netlify",
		"~/.railway", "~/.config/configstore", "~/.wrangler", "~/.config/.wrangler", "~/.supabase", "~/.config/stripe", "~/.s3cfg", "~/.config/rclone", "~/.rclone.conf",
		"~/.config/firebase", "~/.snowflake", "~/.databrickscfg", "~/.kaggle", "~/.config/kaggle", "~/.cache/huggingface/token", "~/.huggingface", "~/.modal.toml",
		"~/.docker/config.json", "~/.docker/contexts", "~/.config/containers/auth.json", "~/.kube", "~/.config/helm/registry", "~/.minikube", "~/.k3d", "~/.krew", "~/.talos",
		"~/.terraform.d/credentials.tfrc.json", "~/.terraformrc", "~/.pulumi", "~/.vault-token", "~/.config/vault", "~/.consul-token", "~/.nomad-token", "~/.ansible/vault",
		"~/.chef", "~/.sentryclirc", "~/.config/op", "~/.config/doppler", "~/.doppler", "~/.infisical",
	}},
	{rule: "registry credentials", blank: true, paths: []string{
		"~/.netrc", "~/_netrc", "~/.npmrc", "~/.yarnrc.yml", "~/.pypirc", "~/.cargo/credentials", "~/.cargo/credentials.toml", "~/.gem/credentials", "~/.local/share/gem/credentials", "~/.bundle/config",
		"~/.m2/settings.xml", "~/.m2/settings-security.xml", "~/.gradle/gradle.properties", "~/.nuget/NuGet/NuGet.Config", "~/.composer/auth.json", "~/.config/composer/auth.json",
		"~/.config/pypoetry/auth.toml", "~/.config/pip/pip.conf", "~/.pip/pip.conf", "~/.condarc", "~/.hex/hex.config", "~/.config/uv/credentials", "~/.local/share/uv/credentials",
	}},
	{rule: "forge credentials", paths: []string{
		"~/.git-credentials", "~/.config/git/credentials", "~/.git-credential-cache", "~/.cache/git/credential", "~/.config/gh", "~/.config/hub", "~/.config/glab-cli", "~/.config/tea", "~/.config/git-credential-manager", "~/.gcm", "~/.jira.d", "~/.config/.jira",
	}},
	{rule: "passwords", paths: []string{
		"~/.password-store", "~/.local/share/password-store", "~/.config/keepassxc", "~/.config/KeePass", "~/.config/Bitwarden", "~/.config/Bitwarden CLI", "~/.config/1Password", "~/.1password", "~/.lastpass", "~/.local/share/lpass", "~/.config/enpass", "~/.dashlane", "~/.authy", "~/.config/Authy Desktop",
	}},
	{rule: "histories", paths: []string{
		"~/.bash_history", "~/.zsh_history", "~/.zhistory", "~/.histfile", "~/.history", "~/.sh_history", "~/.ash_history", "~/.ksh_history", "~/.local/share/fish/fish_history", "~/.config/fish/fish_history", "~/.local/share/atuin", "~/.local/state/bash/history", "~/.local/state/zsh/history", "~/.zsh_sessions", "~/.bash_sessions",
		"~/.python_history", "~/.node_repl_history", "~/.irb_history", "~/.pry_history", "~/.php_history", "~/.julia/logs", "~/.Rhistory", "~/.lesshst", "~/.viminfo", "~/.local/state/nvim/shada",
		"~/.psql_history", "~/.mysql_history", "~/.mariadb_history", "~/.sqlite_history", "~/.rediscli_history", "~/.mongorc.js", "~/.mongosh", "~/.dbshell", "~/.clickhouse-client-history", "~/.usql_history", "~/.pgclirc", "~/.config/pgcli/history", "~/.config/litecli/history", "~/.wget-hsts", "~/.gdb_history",
	}},
	{rule: "database passwords", paths: []string{"~/.pgpass", "~/.pg_service.conf", "~/.my.cnf", "~/.mylogin.cnf", "~/.config/dbeaver", "~/.local/share/DBeaverData", "~/.dbvis", "~/.config/beekeeper-studio"}},
	{rule: "wallets", paths: []string{"~/.bitcoin", "~/.electrum", "~/.ethereum", "~/.config/solana", "~/.monero", "~/.litecoin", "~/.dogecoin", "~/.config/Exodus", "~/.config/Ledger Live", "~/.zcash", "~/.near-credentials", "~/.sui", "~/.aptos", "~/.foundry/keystores", "~/.brownie/accounts"}},
	{rule: "mail and chat", paths: []string{
		"~/.mutt", "~/.muttrc", "~/.config/mutt", "~/.msmtprc", "~/.config/msmtp", "~/.mbsyncrc", "~/.offlineimaprc", "~/.thunderbird", "~/.config/evolution", "~/.local/share/evolution", "~/Mail", "~/Maildir", "~/.config/Signal", "~/.config/Slack", "~/.config/discord", "~/.config/Element", "~/.local/share/TelegramDesktop", "~/.weechat", "~/.config/weechat", "~/.irssi",
	}},
	{rule: "remote access", paths: []string{"~/.config/remmina", "~/.local/share/remmina", "~/.vnc", "~/.config/filezilla", "~/.config/openvpn", "~/.config/wireguard", "~/.cisco", "~/.cert", "~/.pki", "~/.krb5", "~/.k5login", "~/.rhosts", "~/.shosts", "~/.tsh", "~/.config/cloudflared", "~/.cloudflared", "~/.ngrok2", "~/.config/ngrok"}},
	{rule: "agents' credentials", paths: []string{
		"~/.claude/.credentials.json", "~/.claude/projects", "~/.claude/history.jsonl", "~/.claude.json", "~/.codex/auth.json", "~/.codex/sessions", "~/.codex/history.jsonl", "~/.gemini/oauth_creds.json", "~/.gemini/google_accounts.json", "~/.config/github-copilot", "~/.copilot", "~/.local/share/opencode/auth.json", "~/.config/cursor", "~/.cursor/cli-config.json", "~/.aider.conf.yml", "~/.config/goose", "~/.local/share/goose", "~/.continue", "~/.codeium", "~/.qwen/oauth_creds.json", "~/.config/Code/User/globalStorage", "~/.config/Cursor",
	}},
	{rule: "carrel's own state", paths: []string{"~/.local/state/carrel", "~/.local/share/carrel", "~/.carrel"}},
}

// secretsLinux are added on Linux.
var secretsLinux = []secret{
	{rule: "keyrings", paths: []string{"~/.local/share/keyrings", "~/.gnome2/keyrings", "~/.local/share/kwalletd", "~/.kde/share/apps/kwallet", "~/.local/share/org.gnome.SettingsDaemon"}},
	{rule: "browser profiles", paths: []string{
		"~/.config/google-chrome", "~/.config/google-chrome-beta", "~/.config/google-chrome-unstable", "~/.config/chromium", "~/.mozilla", "~/.librewolf", "~/.waterfox", "~/.tor-browser", "~/.config/BraveSoftware", "~/.config/microsoft-edge", "~/.config/vivaldi", "~/.config/opera", "~/.config/epiphany", "~/.local/share/epiphany", "~/.config/mozilla",
		"~/.cache/google-chrome", "~/.cache/chromium", "~/.cache/mozilla", "~/.cache/BraveSoftware", "~/.cache/microsoft-edge", "~/snap/chromium", "~/snap/firefox", "~/snap/brave", "~/.var/app/org.mozilla.firefox", "~/.var/app/com.google.Chrome", "~/.var/app/org.chromium.Chromium", "~/.var/app/com.brave.Browser", "~/.var/app/com.microsoft.Edge",
	}},
	{rule: "session secrets", paths: []string{"~/.Xauthority", "~/.ICEauthority", "~/.dbus", "~/.config/pulse/cookie", "~/.esd_auth"}},
	{rule: "system secrets", paths: []string{
		"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/security/opasswd", "/etc/ssh/ssh_host_*_key", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/krb5.keytab", "/etc/ppp/chap-secrets", "/etc/ppp/pap-secrets", "/etc/wireguard", "/etc/openvpn", "/etc/ipsec.secrets", "/etc/ipsec.d/private", "/etc/NetworkManager/system-connections", "/etc/wpa_supplicant",
		"/etc/kubernetes", "/etc/rancher", "/var/lib/kubelet", "/etc/docker/key.json", "/etc/samba/smbpasswd", "/var/lib/samba/private", "/etc/mysql/debian.cnf", "/etc/cloud/cloud.cfg.d", "/var/lib/cloud", "/var/spool/cron", "/var/lib/sss", "/var/lib/NetworkManager", "/var/lib/bluetooth", "/var/lib/fprint", "/var/lib/systemd/random-seed", "/var/lib/private", "/etc/credstore", "/etc/credstore.encrypted", "/var/lib/systemd/credential.secret",
	}},
	{rule: "run-time secrets", paths: []string{"/run/secrets", "/run/credentials", "/run/user", "/run/sudo", "/run/keys", "/run/screen", "/run/systemd/private", "/run/cloud-init", "/var/run/secrets"}},
	{rule: "daemon sockets", paths: []string{
		"/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/buildkit", "/run/libvirt", "/run/lxd", "/run/incus", "/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket", "/var/lib/incus/unix.socket", "/run/dbus", "/run/snapd.socket", "/run/k3s", "/run/firecracker", "/run/pcscd", "/run/postgresql", "/run/mysqld", "/run/gssproxy.sock", "/run/acpid.socket", "/run/udev/control", "/run/multipathd.socket",
	}},
	{rule: "core dumps", paths: []string{"/var/lib/systemd/coredump", "/var/crash", "/var/spool/abrt", "/var/lib/apport"}},
	{rule: "journals and logs", paths: []string{"/var/log/journal", "/run/log/journal", "/var/log/audit", "/var/log/auth.log*", "/var/log/secure*", "/var/log/syslog*", "/var/log/messages*", "/var/log/kern.log*", "/var/log/btmp*", "/var/log/wtmp*", "/var/log/sudo*", "/var/log/installer"}},
	{rule: "mail and print spools", paths: []string{"/var/mail", "/var/spool/mail", "/var/spool/cups", "/var/spool/at"}},
	{rule: "daemon data", paths: []string{"/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/postgresql", "/var/lib/mysql", "/var/lib/redis", "/var/lib/mongodb", "/var/lib/libvirt", "/var/lib/machines"}},
}

// secretsDarwin are added on macOS.
var secretsDarwin = []secret{
	{rule: "keyrings", paths: []string{"~/Library/Keychains", "/Library/Keychains", "/private/var/db/SystemKey"}},
	{rule: "browser profiles", paths: []string{
		"~/Library/Application Support/Google/Chrome", "~/Library/Application Support/Google/Chrome Beta", "~/Library/Application Support/Chromium", "~/Library/Application Support/Firefox", "~/Library/Application Support/BraveSoftware", "~/Library/Application Support/Microsoft Edge", "~/Library/Application Support/Arc", "~/Library/Application Support/Vivaldi", "~/Library/Application Support/com.operasoftware.Opera",
		"~/Library/Safari", "~/Library/Containers/com.apple.Safari", "~/Library/Cookies", "~/Library/WebKit", "~/Library/Caches/Google/Chrome", "~/Library/Caches/Firefox", "~/Library/HTTPStorages",
	}},
	{rule: "passwords", paths: []string{"~/Library/Application Support/1Password", "~/Library/Group Containers/2BUA8C4S2C.com.1password", "~/Library/Application Support/Bitwarden", "~/Library/Application Support/KeePassXC", "~/Library/Application Support/LastPass", "~/Library/Application Support/Dashlane"}},
	{rule: "personal data", paths: []string{
		"~/Library/Messages", "~/Library/Mail", "~/Library/Calendars", "~/Library/Application Support/AddressBook", "~/Library/Application Support/CallHistoryDB", "~/Library/Application Support/com.apple.TCC", "~/Library/Accounts", "~/Library/IdentityServices", "~/Library/Mobile Documents", "~/Library/CloudStorage", "~/Library/Group Containers/group.com.apple.notes", "~/Library/PersonalizationPortrait", "~/Library/Suggestions", "~/Library/Metadata/CoreSpotlight", "~/Library/Biome",
	}},
	{rule: "cloud credentials", paths: []string{"~/Library/Application Support/gcloud", "~/Library/Application Support/doctl", "~/Library/Application Support/com.vercel.cli", "~/Library/Application Support/heroku", "~/Library/Group Containers/group.com.docker"}},
	{rule: "mail and chat", paths: []string{"~/Library/Application Support/Slack", "~/Library/Application Support/discord", "~/Library/Application Support/Signal", "~/Library/Application Support/Telegram Desktop", "~/Library/Thunderbird"}},
	{rule: "wallets", paths: []string{"~/Library/Application Support/Bitcoin", "~/Library/Application Support/Exodus", "~/Library/Application Support/Ledger Live", "~/Library/Ethereum"}},
	{rule: "system secrets", paths: []string{"/private/etc/master.passwd", "/private/etc/sudoers", "/private/etc/sudoers.d", "/private/etc/ssh/ssh_host_*_key", "/private/var/db/dslocal", "/private/var/root", "/private/var/log/asl", "/private/var/db/diagnostics", "/Library/Application Support/com.apple.TCC", "/private/var/at", "/private/var/vm"}},
	{rule: "daemon sockets", paths: []string{"/private/var/run/docker.sock", "/private/var/run/mDNSResponder", "~/.docker/run", "~/.colima", "~/.lima", "~/.orbstack/run", "~/.rd"}},
}

// environmentFiles are names that hold secrets by custom, below the directories that a box writes
// to. Names that are as often test data (*.p12, id_rsa, credentials.json) are not among them.
var environmentFiles = []string{".env", ".env.*", ".dev.vars", ".dev.vars.*", "*.tfstate", "*.tfstate.backup", ".vault_pass", ".vault-password", ".netrc", ".pgpass"}

// environmentSamples look like environmentFiles but are made for reading.
var environmentSamples = []string{".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", ".env.schema", ".env.*.example", ".env.*.sample", ".env.*.template", ".env.*.dist", ".dev.vars.example"}
