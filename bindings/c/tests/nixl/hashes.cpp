// Prints SHA-256 and HMAC of texts whose values are known.
#include <cstdio>
#include <peer.cpp>
#include <remote_notifier.cpp>

int main() {
  using namespace dma_nixl;
  const auto print = [](const Digest &digest) { std::puts(hex(digest.data(), digest.size()).c_str()); };
  for (const size_t len : {0, 55, 56, 63, 64, 1000})
    print(sha256(std::string(len, 'a')));
  print(sha256("abc"));
  print(hmac("Jefe", "what do ya want for nothing?"));
  print(hmac(std::string(131, static_cast<char>(0xaa)), "Test Using Larger Than Block-Size Key - Hash Key First"));
}
