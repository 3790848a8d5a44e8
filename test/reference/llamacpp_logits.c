// Logits of every token by llama.cpp: how test/fixtures/families-llamacpp was made.
//
//   gcc -Illama.cpp/include -Illama.cpp/ggml/include llamacpp_logits.c -lllama -lggml -lggml-base -o llamacpp_logits
//   ./llamacpp_logits BACKENDS MODEL.gguf OUT.bin ID ID …          BACKENDS: folder of libggml-cpu-*.so
//
// Writes float32 [tokens, vocabulary]. Float32 cache, no flash attention, one thread.
#include "ggml-backend.h"
#include "llama.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc < 5) return 64;
  ggml_backend_load_all_from_path(argv[1]);
  llama_backend_init();
  struct llama_model_params mp = llama_model_default_params();
  mp.n_gpu_layers = 0;
  struct llama_model *model = llama_model_load_from_file(argv[2], mp);
  if (!model) return 1;
  struct llama_context_params cp = llama_context_default_params();
  cp.n_ctx = 64, cp.n_batch = 64, cp.n_ubatch = 64, cp.n_threads = 1, cp.n_threads_batch = 1;
  cp.type_k = GGML_TYPE_F32, cp.type_v = GGML_TYPE_F32, cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  struct llama_context *context = llama_init_from_model(model, cp);
  const int n = argc - 4, vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  struct llama_batch batch = llama_batch_init(n, 0, 1);
  batch.n_tokens = n;
  for (int i = 0; i < n; i++) {
    batch.token[i] = atoi(argv[4 + i]), batch.pos[i] = i, batch.logits[i] = 1;
    batch.n_seq_id[i] = 1, batch.seq_id[i][0] = 0;
  }
  if (llama_decode(context, batch)) return 2;
  FILE *out = fopen(argv[3], "wb");
  if (!out) return 3;
  for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(context, i), sizeof(float), vocabulary, out);
  return fclose(out) ? 3 : 0;
}
