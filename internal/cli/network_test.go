package cli

import (
	"reflect"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
)

func TestNetworkFlags(t *testing.T) {
	file := writePolicy(t, "rules: [{allow: ['*.example.net']}]\n")
	for _, c := range []struct {
		args []string
		want carrel.Network
	}{
		{nil, carrel.Network{}},
		{[]string{"--internet", "--private-traffic"}, carrel.Network{Internet: true, PrivateTraffic: true}},
		{[]string{"--egress-proxy", "u:p@ss@proxy.example.com:1080"},
			carrel.Network{EgressProxy: &carrel.EgressProxy{Address: "proxy.example.com:1080", Username: "u", Password: "p@ss"}}},
		{[]string{"--internet", "--deny", "*.example.com"}, carrel.Network{Policy: &carrel.Policy{Default: "allow",
			Rules: []carrel.Rule{{Name: "--deny *.example.com", Deny: []string{"*.example.com"}}}}}},
		{[]string{"--policy", file, "--allow", "tcp://git.example.com:22", "--allow", "https://[2001:db8::1]:8443-8444", "--allow", "2001:db8::/32", "--deny", "192.0.2.1:80"},
			carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{
				{Name: "--deny 192.0.2.1:80", Deny: []string{"192.0.2.1"}, Ports: []string{"80"}},
				{Name: "--allow tcp://git.example.com:22", Allow: []string{"git.example.com"}, Ports: []string{"22"}, Protocol: "tcp"},
				{Name: "--allow https://[2001:db8::1]:8443-8444", Allow: []string{"2001:db8::1"}, Ports: []string{"8443-8444"}, Protocol: "https"},
				{Name: "--allow 2001:db8::/32", Allow: []string{"2001:db8::/32"}},
				{Allow: []string{"*.example.net"}},
			}}}},
	} {
		var n networkFlags
		cmd := &cobra.Command{}
		n.add(cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		got, said, err := n.network()
		if err != nil || said != (len(c.args) > 0) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v (%+v), %v, %v", c.args, got, got.Policy, said, err)
		}
	}
	for _, args := range [][]string{{"--allow", ""}, {"--allow", "tcp://:22"}, {"--policy", "nonsense"}} {
		var n networkFlags
		cmd := &cobra.Command{}
		n.add(cmd)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.network(); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestTokenFlags(t *testing.T) {
	got, err := tokenSpecs([]string{"aws=sts.example.com"})
	if err != nil || got["aws"].Audience != "sts.example.com" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := tokenSpecs([]string{"aws"}); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("%v", err)
	}
}
