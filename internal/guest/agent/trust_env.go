package agent

import (
	"path"
	"strings"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/pki/trustenv"
)

// trustVariables returns variables for programs that do not read the system's bundle by themselves.
func trustVariables(java bool) map[string]string {
	envs := trustenv.Variables(guest.AuthorityFile, guest.BundleFile)
	if java { // Java reports this variable on standard error at each start
		envs["JAVA_TOOL_OPTIONS"] = "-Djavax.net.ssl.trustStore=" + guest.TrustStoreFile +
			" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"
	}
	return envs
}

// hasJava reports whether the sandbox seems to have Java. It checks only a few paths.
func (a *Agent) hasJava() bool {
	envs := a.env()
	dirs := envs["PATH"]
	if dirs == "" {
		dirs = defaultPath
	}
	names := []string{"/opt/java/openjdk/bin/java"}
	if home := envs["JAVA_HOME"]; path.IsAbs(home) {
		names = append(names, home+"/bin/java")
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		if path.IsAbs(dir) {
			names = append(names, dir+"/java")
		}
	}
	for _, name := range names {
		if _, err := a.sys.Stat(name); err == nil {
			return true
		}
	}
	return false
}
