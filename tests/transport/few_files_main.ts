// Run with few file descriptors: accepts connections until there are none left, then goes on with the next
// one once some are free again.
import { TcpListener } from "../../transport/tcp.ts";

const listener = TcpListener.listen({ hostname: "127.0.0.1", port: 0 });
const served: { close(): void }[] = [];
const clients: Deno.Conn[] = [];
let errors = 0;
let onServed = () => {};
const accepting = listener.accept((connection) => {
  served.push(connection);
  onServed();
}, () => errors++);
const { hostname, port } = listener.address;
// Connections wait in the kernel's queue, so that accepting is what fails in the end.
for (;;) {
  try {
    clients.push(await Deno.connect({ hostname, port }));
  } catch {
    break;
  }
}
// The very last descriptor must go to a connection that nobody can accept.
while (errors === 0) {
  clients.pop()?.close();
  await Deno.connect({ hostname, port }).then((client) => clients.push(client), () => {});
  await new Promise((resolve) => setTimeout(resolve, 10));
}
const again = Promise.withResolvers<void>();
onServed = again.resolve;
for (const client of clients.splice(0)) client.close();
for (const connection of served.splice(0)) connection.close();
const last = await Deno.connect({ hostname, port });
await again.promise;
console.log(errors > 0 ? "served after errors" : "no error came");
last.close();
listener.close();
for (const connection of served) connection.close();
await accepting;
