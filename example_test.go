package carrel_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/carrel-dev/carrel"
	_ "github.com/carrel-dev/carrel/local"
)

// A real sandbox inside this program, with no daemon. Build with CGO_ENABLED=0: the
// program starts itself again as the sandbox's kernel.
func ExampleOpen() {
	ctx := context.Background()
	svc, err := carrel.Open(ctx, carrel.Config{Tier: carrel.GVisor})
	if err != nil {
		log.Fatalf("%v (%s)", err, carrel.HintOf(err))
	}
	defer svc.Close()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: 5 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		log.Fatal(err)
	}
	res, err := c.Run(ctx, carrel.Command{Shell: "uname -a"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", res.Stdout)
}

// Branch on the kind of an error, and show a person its hint.
func ExampleKindOf() {
	ctx := context.Background()
	svc, err := carrel.Open(ctx, carrel.Config{}) // simulated sandboxes
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	_, err = svc.Create(ctx, carrel.CreateOptions{Template: "no-such-template"})
	fmt.Println(errors.Is(err, carrel.NotFound))
	_, err = svc.Create(ctx, carrel.CreateOptions{Timeout: -time.Second})
	fmt.Println(carrel.KindOf(err) == carrel.Invalid)
	var e *carrel.Error
	if errors.As(err, &e) {
		fmt.Println(e.Field)
	}
	// Output:
	// true
	// true
	// timeout
}
