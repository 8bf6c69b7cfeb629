package hostbase

import (
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/internal/driver"
)

// Resolv is the resolv.conf of every sandbox. The daemon's end of its link is the only name server
// that it can reach.
const Resolv = "nameserver " + driver.GatewayIPv4 + "\noptions timeout:2 attempts:2\n"

// Hosts is the hosts file of a new sandbox.
const Hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// accounts are Debian's accounts, which programs look up by name, and the agent's.
var accounts = []struct {
	name        string
	uid, gid    int
	home, shell string
}{
	{"root", 0, 0, "/root", "/bin/bash"},
	{"daemon", 1, 1, "/usr/sbin", nologin},
	{"bin", 2, 2, "/bin", nologin},
	{"sys", 3, 3, "/dev", nologin},
	{"sync", 4, 65534, "/bin", "/bin/sync"},
	{"games", 5, 60, "/usr/games", nologin},
	{"man", 6, 12, "/var/cache/man", nologin},
	{"lp", 7, 7, "/var/spool/lpd", nologin},
	{"mail", 8, 8, "/var/mail", nologin},
	{"news", 9, 9, "/var/spool/news", nologin},
	{"uucp", 10, 10, "/var/spool/uucp", nologin},
	{"proxy", 13, 13, "/bin", nologin},
	{"www-data", 33, 33, "/var/www", nologin},
	{"backup", 34, 34, "/var/backups", nologin},
	{"list", 38, 38, "/var/list", nologin},
	{"irc", 39, 39, "/run/ircd", nologin},
	{"_apt", 42, 65534, "/nonexistent", nologin},
	{"nobody", 65534, 65534, "/nonexistent", nologin},
	{"user", userID, userID, "/home/user", "/bin/bash"},
}

const nologin = "/usr/sbin/nologin"

func passwd() string {
	var b strings.Builder
	for _, a := range accounts {
		fmt.Fprintf(&b, "%s:x:%d:%d:%s:%s:%s\n", a.name, a.uid, a.gid, a.name, a.home, a.shell)
	}
	return b.String()
}

// shadow locks every account: no password opens one.
func shadow() string {
	var b strings.Builder
	for _, a := range accounts {
		fmt.Fprintf(&b, "%s:*:19000:0:99999:7:::\n", a.name)
	}
	return b.String()
}

const group = `root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
lp:x:7:
mail:x:8:
news:x:9:
uucp:x:10:
man:x:12:
proxy:x:13:
kmem:x:15:
dialout:x:20:
fax:x:21:
voice:x:22:
cdrom:x:24:
floppy:x:25:
tape:x:26:
sudo:x:27:user
audio:x:29:
dip:x:30:
www-data:x:33:
backup:x:34:
operator:x:37:
list:x:38:
irc:x:39:
src:x:40:
shadow:x:42:
utmp:x:43:
video:x:44:
sasl:x:45:
plugdev:x:46:
staff:x:50:
games:x:60:
users:x:100:
nogroup:x:65534:
user:x:1000:
`

const nsswitch = `passwd:    files
group:     files
shadow:    files
gshadow:   files
hosts:     files dns
networks:  files
protocols: files
services:  files
ethers:    files
rpc:       files
`

const profile = `# Read by login shells.
PATH="@PATH@"
export PATH
: "${LANG:=C.UTF-8}"
export LANG
if [ -n "${BASH_VERSION-}" ] && [ -n "${PS1-}" ] && [ -r /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
for script in /etc/profile.d/*.sh; do
  [ -r "$script" ] && . "$script"
done
unset script
`

const bashrc = `# Read by interactive bash shells.
[ -z "${PS1-}" ] && return
shopt -s checkwinsize
PS1='\u@\h:\w\$ '
`

const homeBashrc = `# Read by interactive bash shells.
case $- in *i*) ;; *) return ;; esac
HISTCONTROL=ignoreboth
shopt -s checkwinsize histappend
alias ls='ls --color=auto'
alias grep='grep --color=auto'
alias ll='ls -alF'
`

const homeProfile = `# Read by login shells.
if [ -n "${BASH_VERSION-}" ] && [ -f "$HOME/.bashrc" ]; then
  . "$HOME/.bashrc"
fi
if [ -d "$HOME/bin" ]; then PATH="$HOME/bin:$PATH"; fi
if [ -d "$HOME/.local/bin" ]; then PATH="$HOME/.local/bin:$PATH"; fi
`

const sudoers = `Defaults env_reset
Defaults secure_path="@PATH@"
Defaults !fqdn
root ALL=(ALL:ALL) ALL
user ALL=(ALL:ALL) NOPASSWD:ALL
#includedir /etc/sudoers.d
`
