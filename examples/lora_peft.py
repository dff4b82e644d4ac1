"""LoRA by Hugging Face's peft: of a transformer, only peft's matrices and the head are trained.

It needs `pip install peft transformers`. The weights are random here; take ``from_pretrained``.
"""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

import fedldp

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


class Classifier(nn.Module):
    """Token ids to logits; peft freezes all but its own matrices and the head."""

    def __init__(self):
        super().__init__()
        config = BertConfig(vocab_size=64, intermediate_size=64, num_labels=2, **SIZES)
        lora = LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
        self.model = get_peft_model(BertForSequenceClassification(config), lora)

    def forward(self, x):
        return self.model(input_ids=x.long()).logits  # ids come as float32


def sentences(seed, count=30):
    """Return made-up sentences of 12 token ids; the class decides which ids are in them."""
    draw = torch.Generator().manual_seed(seed)
    classes = torch.randint(2, (count,), generator=draw)
    ids = torch.randint(32, (count, 12), generator=draw) + 32 * classes[:, None]
    return TensorDataset(ids, classes)


if __name__ == "__main__":
    torch.manual_seed(0)
    result = fedldp.run(
        "distributed-gaussian-digits",
        dataset=[DataLoader(sentences(seed), batch_size=10) for seed in range(1, 51)],
        test=sentences(0, 500),
        model=Classifier(),
        trainable="*lora_*, *modules_to_save*",
        server_optimizer="adam",
        server_rate=0.1,
        learning_rate=0.5,
        local_epochs=1,
        rounds=10,
        epsilon=8,
    )
    print(result)
    kept = [name for name in result.weights if "lora" in name]
    print(f"{len(result.weights)} tensors in the model, of which {len(kept)} are LoRA's")
