"""What an endpoint has answered, before anything is read from it.

In: whatever openai's client returns. It does not check that: a field may be missing or of another
type, and a body that is no JSON object comes as a text. Out: a completion with a message and its
usage, or `EndpointFault`.
"""

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from seal.evaluation.faults import EndpointFault


def checked(reply: object, where: str) -> ChatCompletion:
    """The reply, if everything that is read of it is there.

    Args:
        reply: Of /chat/completions.
        where: The endpoint's address, for the error.

    Raises:
        EndpointFault: Something is missing or of another type.
    """
    if not isinstance(reply, ChatCompletion) or not (reply.usage and reply.choices):
        raise EndpointFault(f"{where} answered without choices or usage")
    message: object = reply.choices[0].message
    counts: tuple[object, ...] = (reply.usage.prompt_tokens, reply.usage.total_tokens)
    readable = (
        isinstance(message, ChatCompletionMessage)
        and isinstance(message.content, str | None)
        and isinstance(message.tool_calls, list | None)
        and all(isinstance(call, openai.BaseModel) for call in message.tool_calls or ())
    )
    if not readable or not all(isinstance(count, int) for count in counts):
        raise EndpointFault(f"{where} answered with a message or a usage that cannot be read")
    return reply
