package carreltest_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/carreltest"
)

// In a test, New ends everything with the test.
func ExampleNew() {
	_ = func(t *testing.T) { // func TestAgent(t *testing.T)
		srv := carreltest.New(t, carreltest.WithMaxSandboxes(10))
		box, err := srv.Client().Create(t.Context(), carrel.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pc, err := srv.Client().Computer(t.Context(), box.ID)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := pc.Run(t.Context(), carrel.Command{Shell: "echo hello"}); err != nil || string(res.Stdout) != "hello\n" {
			t.Errorf("%v, %v", res, err)
		}
	}
}

// Elsewhere, Start and Close do. Any client of E2B's API can use the server's URL with its key.
func ExampleStart() {
	srv, err := carreltest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if _, err := srv.Client().Create(context.Background(), carrel.CreateOptions{Metadata: map[string]string{"test": "yes"}}); err != nil {
		log.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, srv.URL+"/v2/sandboxes?metadata=test%3Dyes", nil)
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("X-API-Key", srv.APIKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
