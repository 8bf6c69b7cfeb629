package agent

import (
	"path"
	"strings"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/pki/trustenv"
)

// trustVariables lead programs to the authority that do not read the system's bundle,
// or not by themselves.
func trustVariables(java bool) map[string]string {
	envs := trustenv.Variables(guest.AuthorityFile, guest.BundleFile)
	if java { // each start of Java tells of the variable on its standard error
		envs["JAVA_TOOL_OPTIONS"] = "-Djavax.net.ssl.trustStore=" + guest.TrustStoreFile +
			" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"
	}
	return envs
}

// hasJava reports whether there is a Java in the sandbox, as far as a few looks tell.
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
