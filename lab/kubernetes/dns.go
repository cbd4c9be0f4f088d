package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/dns/dnsmessage"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

const clusterDomain = ".svc.cluster.local."

// newClusterDNSCommand is a DNS server for the names of Services and for nothing else. The usual one comes with as many
// dependencies again as all the rest of this program; the lab's pods need these names only, and have no other network.
func newClusterDNSCommand(ctx context.Context) *cobra.Command {
	var kubeconfig, listen string
	cmd := &cobra.Command{
		Use:          "cluster-dns",
		Short:        "Answers <service>.<namespace>" + strings.TrimSuffix(clusterDomain, "."),
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			return serveDNS(ctx, kubeconfig, listen)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:53", "UDP address to answer on")
	return cmd
}

type clusterDNS struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

func serveDNS(ctx context.Context, kubeconfig, listen string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	dns := clusterDNS{
		services: factory.Core().V1().Services().Lister(),
		slices:   factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	socket, err := net.ListenPacket("udp4", listen)
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		socket.Close()
	}()
	buffer := make([]byte, 1500)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if answer, err := dns.answer(buffer[:n]); err != nil {
			fmt.Printf("no answer to %s: %v\n", from, err)
		} else if _, err := socket.WriteTo(answer, from); err != nil {
			fmt.Printf("answer to %s not sent: %v\n", from, err)
		}
	}
}

func (d clusterDNS) answer(request []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(request)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	addresses, known := d.lookup(strings.ToLower(question.Name.String()))
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID:                 header.ID,
			Response:           true,
			Authoritative:      true,
			RecursionDesired:   header.RecursionDesired,
			RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	// A known name without addresses of the asked type is an empty answer, not an unknown name: resolvers ask
	// for both families and give up at once when either is unknown.
	if question.Type == dnsmessage.TypeA {
		for _, address := range addresses {
			var a [4]byte
			copy(a[:], address.To4())
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: a},
			})
		}
	}
	return reply.Pack()
}

// lookup returns the IPv4 addresses of a name: the Service's own, or those of its ready pods if it has none.
func (d clusterDNS) lookup(name string) ([]net.IP, bool) {
	path, ok := strings.CutSuffix(name, clusterDomain)
	if !ok {
		return nil, false
	}
	parts := strings.Split(path, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return nil, false
	}
	service, namespace := parts[len(parts)-2], parts[len(parts)-1]
	found, err := d.services.Services(namespace).Get(service)
	if err != nil {
		return nil, false
	}
	if len(parts) == 2 && found.Spec.ClusterIP != core.ClusterIPNone {
		if ip := net.ParseIP(found.Spec.ClusterIP).To4(); ip != nil {
			return []net.IP{ip}, true
		}
		return nil, true
	}
	slices, err := d.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service}))
	if err != nil {
		return nil, false
	}
	var addresses []net.IP
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			// "pod.service.namespace" names one pod of a Service, by its host name.
			named := len(parts) == 2 || (endpoint.Hostname != nil && *endpoint.Hostname == parts[0])
			if !ready || !named {
				continue
			}
			for _, address := range endpoint.Addresses {
				if ip := net.ParseIP(address).To4(); ip != nil {
					addresses = append(addresses, ip)
				}
			}
		}
	}
	return addresses, len(parts) == 2 || len(addresses) > 0
}
