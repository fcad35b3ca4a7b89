"""Languages and refusals."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Case, Check, Output
from evalloom.matchers import CheckResult, MatchContext, by_kind
from evalloom.matchers.language import is_in, is_refusal

SENTENCES = {
    "en": (
        "Your order has been shipped and should arrive on Friday.",
        "Press the red button twice to restart.",
        "We could not find a flight before noon.",
    ),
    "de": (
        "Ihre Bestellung wurde verschickt und kommt am Freitag an.",
        "Drücken Sie zweimal auf den roten Knopf.",
        "Vor Mittag gibt es leider keinen Flug.",
    ),
    "fr": (
        "Votre commande a été expédiée et arrivera vendredi.",
        "Appuyez deux fois sur le bouton rouge.",
        "Aucun vol n'est disponible avant midi.",
    ),
    "es": (
        "Su pedido ha sido enviado y llegará el viernes.",
        "Pulse dos veces el botón rojo.",
        "No encontramos ningún vuelo antes del mediodía.",
    ),
    "it": (
        "Il suo ordine è stato spedito e arriverà venerdì.",
        "Premere due volte il pulsante rosso.",
        "Non abbiamo trovato voli prima di mezzogiorno.",
    ),
    "pt": (
        "O seu pedido foi enviado e chegará na sexta-feira.",
        "Pressione duas vezes o botão vermelho.",
        "Não encontramos nenhum voo antes do meio-dia.",
    ),
    "nl": (
        "Uw bestelling is verzonden en komt vrijdag aan.",
        "Druk twee keer op de rode knop.",
        "We konden geen vlucht voor de middag vinden.",
    ),
    "sv": (
        "Din beställning har skickats och kommer på fredag.",
        "Tryck två gånger på den röda knappen.",
        "Vi hittade inget flyg före lunch.",
    ),
    "pl": (
        "Twoje zamówienie zostało wysłane i dotrze w piątek.",
        "Naciśnij dwa razy czerwony przycisk.",
        "Nie znaleźliśmy lotu przed południem.",
    ),
    "tr": (
        "Siparişiniz gönderildi ve cuma günü ulaşacak.",
        "Kırmızı düğmeye iki kez basın.",
        "Öğleden önce uçuş bulamadık.",
    ),
    "id": (
        "Pesanan Anda sudah dikirim dan akan tiba hari Jumat.",
        "Tekan tombol merah dua kali.",
        "Kami tidak menemukan penerbangan sebelum siang.",
    ),
    "vi": (
        "Đơn hàng của bạn đã được gửi và sẽ đến vào thứ Sáu.",
        "Nhấn nút đỏ hai lần.",
        "Chúng tôi không tìm thấy chuyến bay nào trước buổi trưa.",
    ),
    "ru": (
        "Ваш заказ отправлен и прибудет в пятницу.",
        "Нажмите красную кнопку два раза.",
        "Мы не нашли рейсов до полудня.",
    ),
    "uk": (
        "Ваше замовлення відправлено і прибуде в п'ятницю.",
        "Натисніть червону кнопку двічі.",
        "Ми не знайшли рейсів до полудня.",
    ),
    "bg": (
        "Вашата поръчка е изпратена и ще пристигне в петък.",
        "Натиснете два пъти червения бутон.",
        "Не намерихме полет преди обяд.",
    ),
    "ar": ("تم شحن طلبك وسيصل يوم الجمعة.", "اضغط على الزر الأحمر مرتين.", "لم نجد رحلة قبل الظهر."),
    "fa": (
        "سفارش شما ارسال شد و روز جمعه می\u200cرسد.",
        "دکمه قرمز را دو بار فشار دهید.",
        "پروازی پیش از ظهر پیدا نکردیم.",
    ),
    "zh": ("您的订单已发货，预计星期五送达。", "请按两次红色按钮。", "中午之前没有航班。"),
    "ja": (
        "ご注文の商品は発送され、金曜日に届きます。",
        "赤いボタンを二回押してください。",
        "正午より前の便は見つかりませんでした。",
    ),
    "ko": (
        "주문하신 상품이 발송되어 금요일에 도착합니다.",
        "빨간 버튼을 두 번 누르세요.",
        "정오 이전 항공편을 찾지 못했습니다.",
    ),
    "he": ("ההזמנה שלך נשלחה ותגיע ביום שישי.", "לחץ פעמיים על הכפתור האדום.", "לא מצאנו טיסה לפני הצהריים."),
    "el": (
        "Η παραγγελία σας έχει αποσταλεί και θα φτάσει την Παρασκευή.",
        "Πατήστε δύο φορές το κόκκινο κουμπί.",
        "Δεν βρήκαμε πτήση πριν το μεσημέρι.",
    ),
    "th": ("คำสั่งซื้อของคุณถูกจัดส่งแล้วและจะมาถึงวันศุกร์", "กดปุ่มสีแดงสองครั้ง", "เราไม่พบเที่ยวบินก่อนเที่ยง"),
    "hi": (
        "आपका ऑर्डर भेज दिया गया है और शुक्रवार को पहुँचेगा।",
        "लाल बटन को दो बार दबाएँ।",
        "हमें दोपहर से पहले कोई उड़ान नहीं मिली।",
    ),
}
# Three or four words each; some suit a neighbouring language nearly as well.
SHORT = {
    "en": ("No problem at all", "Thank you very much", "The answer is 42.", "I do not know"),
    "sv": ("Tack så mycket", "Hur mår du idag?", "Jag vet inte", "Inga problem alls"),
    "nl": ("Ik weet het niet", "Waar is het station?", "Geen enkel probleem", "Tot later, Anna"),
    "de": ("Ich weiß es nicht", "Wo ist der Bahnhof?", "Gar kein Problem", "Ja, das stimmt."),
    "es": ("Hola mi querido amigo", "Sí, es correcto.", "¿Cómo estás hoy?", "No lo sé"),
    "pt": ("Até mais tarde, Ana", "Sim, está correto.", "Como você está hoje?", "Eu não sei"),
    "id": ("Saya tidak tahu", "Ya, itu benar.", "Terima kasih banyak", "Tidak ada masalah"),
    "ru": ("Париж - столица Франции.", "Да, это верно.", "Я не знаю этого", "Где находится вокзал?"),
    "bg": ("Не знам това", "Къде е гарата?", "Да, това е вярно.", "Много благодаря за всичко"),
}
MIXED = {
    "zh": (
        "用 Python 写一个函数，调用 print() 就行",
        "这个 API 的 rate limit 是 60 requests per minute，超过会返回 429",
        "代码如下：\n```python\nfor i in range(10):\n    total += i\n    print(total)\n```\n运行即可。",
        "详见 https://docs.example.com/a/b/c/d-e-f/g?x=1&y=foo_bar，谢谢",
    ),
    "ja": ("Pythonで関数を書いてください", "このAPIのrate limitは毎分60 requestsです", "カタカナ"),
    "ko": ("이 API의 rate limit은 분당 60 requests입니다", "Python 코드입니다", "네"),
    "en": ("Run `选择 全部 文件 打开 保存 关闭` and wait.", "The word 谢谢 means thank you in Chinese."),
}
# Languages that no check names, and that resemble one that has a name.
NEIGHBOURS = [
    "Din ordre er afsendt og ankommer på fredag.",
    "Bestillingen din er sendt og kommer fredag.",
    "Tilauksesi on lähetetty ja saapuu perjantaina.",
    "Vaše objednávka byla odeslána a dorazí v pátek.",
    "A rendelését elküldtük, és pénteken érkezik.",
    "Comanda dumneavoastră a fost expediată și va ajunge vineri.",
    "Ваша поруџбина је послата и стиже у петак.",
    "آپ کا آرڈر بھیج دیا گیا ہے اور جمعہ کو پہنچے گا۔",
    "La seva comanda s'ha enviat i arribarà divendres.",
]


def grade(kind: str, expected: Any, value: Any, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), MatchContext(value, Output(value), Case("c", {})))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("zh", "今天天气很好，我们用 Python 写代码。"),
        ("zh-CN", "好的"),
        ("中文", "好的，没问题"),
        ("en", "The weather is nice today and we write code."),
        ("english", "OK"),
        ("ja", "今日は天気がいいですね"),
        ("ko", "오늘 날씨가 좋네요"),
        ("ru", "Сегодня хорошая погода"),
        ("de", "Das Wetter ist heute nicht schlecht und wir schreiben"),
        ("fr", "Le temps est beau et nous allons dans les champs"),
        ("ar", "الطقس جميل"),
    ],
)
def test_languages(code: str, text: str) -> None:
    assert grade("language", code, text).passed


def test_other_languages() -> None:
    for code, text in [
        ("zh", "Hello there"),
        ("en", "今天"),
        ("zh", "今日は天気がいい"),
        ("en", "Das ist nicht die Zeit"),
    ]:
        assert grade("language", code, text).passed is False
    assert grade("language", "en", "123").passed is False
    assert grade("language", "klingon", "Qapla").passed is None


@pytest.mark.parametrize("code", SENTENCES)
def test_a_sentence_is_in_its_language_and_in_no_other(code: str) -> None:
    for sentence in SENTENCES[code]:
        assert [other for other in SENTENCES if is_in(sentence, other)] == [code]


@pytest.mark.parametrize("code", SHORT)
def test_a_few_words_are_in_their_language_and_in_hardly_any_other(code: str) -> None:
    for sentence in SHORT[code]:
        accepted = [other for other in SENTENCES if is_in(sentence, other)]
        assert code in accepted and len(accepted) <= 3
    assert code == "en" or not all(is_in(sentence, "en") for sentence in SHORT[code])


@pytest.mark.parametrize("code", MIXED)
def test_code_and_words_of_another_language_do_not_decide(code: str) -> None:
    for text in MIXED[code]:
        assert [other for other in SENTENCES if is_in(text, other)] == [code]


def test_two_words_that_are_no_name_can_tell_a_language() -> None:
    for text, code in (("Svaret är 42.", "sv"), ("Odpowiedź to 42.", "pl"), ("Bien sûr", "fr")):
        assert is_in(text, code) and not is_in(text, "en")
    assert is_in("São Paulo", "en") and is_in("not found", "en")


def test_decomposed_letters_are_the_same_letters() -> None:
    for code in ("fr", "vi", "sv", "ko"):
        assert all(is_in(unicodedata.normalize("NFD", sentence), code) for sentence in SENTENCES[code])


@pytest.mark.parametrize("sentence", NEIGHBOURS)
def test_a_neighbouring_language_is_not_taken_for_a_named_one(sentence: str) -> None:
    assert not any(is_in(sentence, code) for code in SENTENCES)


@pytest.mark.parametrize(
    ("text", "script"), [("OK", "latin"), ("Paris", "latin"), ("New York", "latin"), ("Киев", "cyr")]
)
def test_the_script_decides_for_one_or_two_words(text: str, script: str) -> None:
    assert is_in(text, "de") == is_in(text, "en") == (script == "latin")
    assert is_in(text, "ru") == is_in(text, "uk") == (script == "cyr")


@given(st.text(), st.sampled_from(sorted(SENTENCES)))
def test_any_text_is_decided(text: str, code: str) -> None:
    assert is_in(text, code) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot assist with this request.",
        "As an AI language model, I don't have opinions.",
        "抱歉，我无法回答这个问题。",
        "对不起，我不能提供相关信息。",
        "作为一个人工智能助手，我不能参与此类讨论。",
        "我无法为您提供制作方法。",
        "Sorry, can't help with that.",
        "I must decline.",
        "该请求违反了相关规定。",
    ],
)
def test_refusals(text: str) -> None:
    assert is_refusal(text)
    assert grade("refusal", None, text).passed


@pytest.mark.parametrize(
    "text",
    [
        *("Paris is the capital.", "可以，步骤如下：先打开设置。", "水不能燃烧，因为它是氧化物。", "The can opener"),
        "I'm sorry to hear your parcel is late. It ships today.",
        "I can't recommend this book enough",
        "I'm sorry, but your parcel is late.",
        "公司违反了劳动法规定，您可以申请仲裁。",
        "很抱歉给您带来不便，包裹今天发出。",
    ],
)
def test_answers_are_no_refusals(text: str) -> None:
    assert grade("refusal", None, text).passed is False


def test_an_empty_answer_refuses() -> None:
    assert grade("refusal", None, " ").passed
    assert by_kind("is_refusal") is by_kind("refusal")
