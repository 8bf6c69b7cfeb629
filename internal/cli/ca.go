package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/spf13/cobra"
)

// caCommand is "carrel ca".
func (a *app) caCommand() *cobra.Command {
	var asPEM bool
	c := &cobra.Command{
		Use:   "ca",
		Short: "Say where the authority's certificate is of a daemon with --tls-self-signed",
		Long: `Prints the file of the certificate that clients of a daemon with
--tls-self-signed are to trust:

  export NODE_EXTRA_CA_CERTS=$(carrel ca) SSL_CERT_FILE=$(carrel ca)`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := localDaemons("carrel ca"); err != nil {
				return err
			}
			file := authority(a.dataDirectory())
			raw, err := os.ReadFile(file)
			if err != nil {
				return &carrel.Error{Op: "find the authority", Kind: carrel.NotFound, Err: err,
					Hint: "it is made by: carrel serve --tls-self-signed   (another data directory: --data-dir)"}
			}
			switch {
			case a.json:
				return a.printJSON(map[string]string{"file": file, "pem": string(raw)})
			case asPEM:
				_, err = a.out.Write(raw)
			default:
				_, err = fmt.Fprintln(a.out, file)
			}
			return err
		},
	}
	c.Flags().BoolVar(&asPEM, "pem", false, "print the certificate itself")
	return c
}

// trust makes a client also trust the local daemon's authority, if the daemon has one.
func trust(dataDir string) []client.Option {
	if roots := trustedRoots(dataDir); roots != nil {
		return []client.Option{client.WithTLSConfig(roots)}
	}
	return nil
}

// trustedRoots is how certificates are checked; nil is as usual.
func trustedRoots(dataDir string) *tls.Config {
	raw, err := os.ReadFile(authority(dataDir))
	if err != nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(raw) {
		return nil
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
